//! Typical mistakes of users of other servers, or of TOML's newcomers.

use crate::mistakes::{SITE, refused};

#[test]
fn what_people_write_who_come_from_other_servers_has_words_of_its_own() {
    refused(
        "[global]\npid = /run/php-fpm.pid\n[www]\nuser = www-data\npm.max_children = 5\n",
        &["2:7: this is the configuration of php-fpm; `maitred fpm --fpm-config FILE` runs with \
             it as it is, and [pools.NAME] takes the same settings, without the prefix `pm.` and \
             with texts in quotation marks"],
    );
    refused(
        "server {\n    listen 80;\n    root /srv/shop;\n}\n",
        &["1:8: this is a configuration of nginx; write [[sites]] with the `hosts` and the \
             `root` of each server"],
    );
    refused(
        "<VirtualHost *:80>\n    DocumentRoot /srv/shop\n</VirtualHost>\n",
        &["1:1: this is a configuration of Apache; write [[sites]] with the `hosts` and the \
             `root` of each VirtualHost"],
    );
    refused(
        &format!(
            "[pools.www]\npm = auto\nuser = www-data\nphp_admin_value[memory_limit] = 256M\n{SITE}"
        ),
        &[
            "2:6: `auto` is a text; expected \"auto\", with quotation marks",
            "3:8: `www-data` is a text; expected \"www-data\", with quotation marks",
            "4:16: `php_admin_value[memory_limit] = 256M` is written as php-fpm has it; expected \
             php_admin_value = { memory_limit = \"…\" }",
        ],
    );
    refused(
        &format!("[pools.www]\nuser = \"a\"\n[pools.www]\n{SITE}"),
        &["3:8: `www` is set here for the second time; leave one of the two out"],
    );
}

#[test]
fn a_section_that_there_is_none_of_is_answered_with_those_that_there_are() {
    refused(
        &format!("[pool.www]\nmax_children = 5\n[[site]]\nroot = \"public\"\n[www]\n{SITE}"),
        &[
            "1:2: unknown section `pool`; did you mean [pools.NAME]?",
            "3:3: unknown section `site`; did you mean [[sites]]?",
            "5:2: unknown section `www`; expected [pools.NAME], [pool_defaults], [[sites]], \
             [sites.cache] or [tls]",
        ],
    );
}

#[test]
fn quotation_marks_of_print_are_none() {
    refused(
        &format!("listen = “:8080”\n{SITE}"),
        &["1:10: `“:8080”` has the quotation marks of printed text; expected \":8080\""],
    );
}

#[test]
fn a_switch_is_true_or_false_and_no_text() {
    for word in ["yes", "no", "No", "NO", "on", "OFF", "True", "tRUE", "FALSE"] {
        let expected =
            format!("2:22: `{word}` is no TOML; expected true or false, without quotation marks");
        refused(&format!("[pools.www]\nrequest_accounting = {word}\n{SITE}"), &[&expected]);
    }
}
