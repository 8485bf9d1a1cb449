//! No line of Apache's configuration is lost before it is imported.

use super::access_tests::{expect_denied, of_host};

#[test]
fn folders_that_cannot_be_listed_are_left_out_as_access() {
    for line in [
        "IncludeOptional /unlisted/*.conf",
        "Include /unlisted/a.conf",
        "IncludeOptional /unlisted/a",
    ] {
        let imported = of_host(line);
        assert!(!imported.report.keeps_access(), "{line}\n{}", imported.report);
    }
    assert!(of_host("IncludeOptional /listed/*.conf").report.keeps_access());
}

#[test]
fn lines_for_versions_of_an_expression_are_those_of_this_version() {
    let of = |condition: &str| {
        let denied = "<Location /a>\nRequire all denied\n</Location>";
        format!("<IfVersion {condition}>\n{denied}\n</IfVersion>")
    };
    // As Apache 2.4 does.
    for condition in [
        "~ ^2\\.4",
        "~ \"^2\\.4\"",
        "!~ ^2\\.2",
        "= /^2\\.4/",
        "== /^2\\.4/",
        "!= /^2\\.2/",
        "/^2\\.4/",
        "~ ^2\\.(?!2)",
        ">= 2.4",
    ] {
        expect_denied(&of(condition), &["/a"], &["/b"]);
    }
    for condition in ["~ ^2\\.2", "= /^2\\.2/", "!~ ^2\\.4", "~ /^2\\.4/", "2.4", "< 2.4"] {
        expect_denied(&of(condition), &[], &["/a"]);
    }
    for condition in ["~ [", "= /^2\\.4", "=~ ^2", "> /2/", "= 2.x"] {
        let imported = of_host(&of(condition));
        assert!(!imported.report.keeps_access(), "{condition}\n{}", imported.report);
    }
}
