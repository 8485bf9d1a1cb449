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
