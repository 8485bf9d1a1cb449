//! The rules at work: the cases of php-src's own tests (sapi/fpm/tests/fcgi-env-*.phpt), and what
//! they leave out. `fpm_environment.rs` of the tests package asks php-fpm itself.

use super::*;

/// A machine with some scripts and folders.
struct Machine {
    fix_pathinfo: bool,
    discard_path: bool,
    decodes_path: bool,
    decodes_path_info: bool,
    doc_root: Option<&'static [u8]>,
    files: &'static [&'static str],
}

const MACHINE: Machine = Machine {
    fix_pathinfo: true,
    discard_path: false,
    decodes_path: false,
    decodes_path_info: false,
    doc_root: None,
    files: &[
        "/www/t.php",
        "/www/a+b.php",
        "/www/a%2Bb.php",
        "/www/admin/secret.php",
        "/www/t%25.php",
        "/www/a/index.php",
        "/www/photo.jpg",
        "/cgi/php",
    ],
};

const WITHOUT: Machine = Machine { fix_pathinfo: false, ..MACHINE };

/// As php-fpm since 8.3.19 and 8.4.5, and as 8.5 without a setting.
const DECODING_PATH_INFO: Machine = Machine { decodes_path_info: true, ..MACHINE };

/// As php-fpm from 8.5 on with `fastcgi.script_path_encoded = 0`.
const DECODING: Machine = Machine { decodes_path: true, ..MACHINE };

impl Surroundings for Machine {
    fn fix_pathinfo(&self) -> bool {
        self.fix_pathinfo
    }

    fn discard_path(&self) -> bool {
        self.discard_path
    }

    fn decodes_path(&self) -> bool {
        self.decodes_path
    }

    fn decodes_path_info(&self) -> bool {
        self.decodes_path_info
    }

    fn doc_root(&self) -> Option<&[u8]> {
        self.doc_root
    }

    fn resolves(&self, params: &Params, path: Text) -> bool {
        let path = params.bytes(path);
        let is_beneath = |file: &&str| {
            let rest = file.as_bytes().strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.files.iter().any(is_beneath)
    }

    fn is_file(&self, path: &[u8]) -> bool {
        self.files.iter().any(|file| file.as_bytes() == path)
    }
}

/// What the rules make of `NAME=VALUE` lines, to which a method is added: first the script, its
/// URI and what becomes of it, then the parameters that are new or changed; `-NAME`: it is gone.
fn come_to(machine: &Machine, given: &[&str]) -> String {
    let given: Vec<(&str, &str)> = given
        .iter()
        .map(|line| line.split_once('=').unwrap())
        .chain([("REQUEST_METHOD", "GET")])
        .collect();
    let mut params = Params::new();
    params.clear_for_foreign();
    for (name, value) in &given {
        params.set(name.as_bytes(), value.as_bytes()).unwrap();
    }
    let found = translate(&mut params, machine, &[".php".to_owned()]).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let or_none = |it: Option<Text>| it.map_or("none".to_owned(), |it| text(params.bytes(it)));
    let mut lines =
        vec![or_none(found.script), or_none(found.uri), format!("{:?}", found.admission)];
    for (name, value) in params.iter() {
        let (name, value) = (text(name), text(value));
        if !given.contains(&(&name, &value)) {
            lines.push(format!("{name}={value}"));
        }
    }
    let gone = given.iter().filter(|(name, _)| params.get(name.as_bytes()).is_none());
    lines.extend(gone.map(|(name, _)| format!("-{name}")));
    lines.join("\n")
}

macro_rules! cases {
    ($($name:ident: $machine:expr, [$($given:expr),* $(,)?] => [$($line:expr),* $(,)?];)*) => {$(
        #[test]
        fn $name() {
            assert_eq!(come_to(&$machine, &[$($given),*]), [$($line),*].join("\n"));
        }
    )*};
}

cases! {
    nginx_with_the_script_alone: MACHINE, [
        "SCRIPT_FILENAME=/www/t.php", "SCRIPT_NAME=/t.php", "DOCUMENT_ROOT=/www", "PATH_INFO=",
    ] => ["/www/t.php", "/t.php", "Admitted"];

    nginx_with_a_path_info_that_it_has_split_off: MACHINE, [
        "SCRIPT_FILENAME=/www/t.php", "SCRIPT_NAME=/t.php", "PATH_INFO=/more",
        "DOCUMENT_ROOT=/www", "PATH_TRANSLATED=/www/more",
    ] => ["/www/t.php", "/t.php", "Admitted"];

    nginx_with_the_path_info_in_all_three: MACHINE, [
        "SCRIPT_FILENAME=/www/t.php/more", "SCRIPT_NAME=/t.php/more",
        "PATH_INFO=/t.php/more", "DOCUMENT_ROOT=/www",
    ] => [
        "/www/t.php", "/t.php", "Admitted",
        "SCRIPT_FILENAME=/www/t.php", "SCRIPT_NAME=/t.php", "PATH_INFO=/more",
        "ORIG_PATH_INFO=/t.php/more", "ORIG_SCRIPT_NAME=/t.php/more",
        "ORIG_SCRIPT_FILENAME=/www/t.php/more", "PATH_TRANSLATED=/www/more",
    ];

    a_path_info_that_is_no_longer_than_what_is_cut_off_stays: MACHINE, [
        "SCRIPT_FILENAME=/www/t.php/more", "SCRIPT_NAME=/t.php", "PATH_INFO=/more",
    ] => [
        "/www/t.php", "/t.php", "Admitted",
        "SCRIPT_FILENAME=/www/t.php", "ORIG_SCRIPT_FILENAME=/www/t.php/more",
        "PATH_TRANSLATED=/www/more",
    ];

    // bug78599-path-info-underflow: CVE-2019-11043.
    an_empty_path_info_does_not_reach_before_its_beginning: MACHINE, [
        "SCRIPT_FILENAME=/www/t.php/some%0Apath", "SCRIPT_NAME=/t.php/some%0Apath", "PATH_INFO=",
        "DOCUMENT_ROOT=/www",
    ] => [
        "/www/t.php", "/t.php/some%0Apath", "Admitted",
        "SCRIPT_FILENAME=/www/t.php", "ORIG_SCRIPT_FILENAME=/www/t.php/some%0Apath",
        "PATH_TRANSLATED=/www",
    ];

    apache_handler_with_path_info: MACHINE, [
        "SCRIPT_FILENAME=proxy:fcgi://localhost:9000/www/t.php/1%202", "SCRIPT_NAME=/t.php",
        "PATH_INFO=/1 2", "PATH_TRANSLATED=/www/1 2", "DOCUMENT_ROOT=/www",
    ] => [
        "/www/t.php", "/1 2", "Admitted",
        "SCRIPT_FILENAME=/www/t.php", "SCRIPT_NAME=/1 2", "PATH_INFO=/1%202",
        "PATH_TRANSLATED=/www/1%202",
        "ORIG_PATH_INFO=/1 2", "ORIG_SCRIPT_NAME=/t.php",
        "ORIG_SCRIPT_FILENAME=/www/t.php/1%202", "ORIG_PATH_TRANSLATED=/www/1 2",
    ];

    apache_handler_with_query: MACHINE, [
        "SCRIPT_FILENAME=proxy:fcgi://localhost:9000/www/t.php?a=1/2", "SCRIPT_NAME=/t.php",
    ] => ["/www/t.php", "/t.php", "Admitted", "SCRIPT_FILENAME=/www/t.php"];

    apache_handler_over_a_unix_socket: MACHINE, [
        "SCRIPT_FILENAME=proxy:fcgi://localhost/www/t.php", "SCRIPT_NAME=/t.php",
        "PATH_INFO=/x", "REDIRECT_URL=/t.php/x", "PATH_TRANSLATED=/www/x",
    ] => ["/www/t.php", "/t.php", "Admitted", "SCRIPT_FILENAME=/www/t.php"];

    apache_balancer: MACHINE, [
        "SCRIPT_FILENAME=PROXY:Balancer://pool/www/t.php/x?y", "SCRIPT_NAME=/t.php/x",
    ] => [
        "/www/t.php", "/t.php", "Admitted",
        "SCRIPT_FILENAME=/www/t.php", "SCRIPT_NAME=/t.php",
        "ORIG_SCRIPT_NAME=/t.php/x", "PATH_INFO=/x", "ORIG_SCRIPT_FILENAME=/www/t.php/x",
        "PATH_TRANSLATED=/www/x",
    ];

    apache_proxy_pass_with_an_encoded_path_info: MACHINE, [
        "SCRIPT_FILENAME=proxy:fcgi://[::1]:9000/www/t.php/1%20+2", "SCRIPT_NAME=/t.php/1 +2",
        "DOCUMENT_ROOT=/www/",
    ] => [
        "/www/t.php", "/t.php", "Admitted",
        "SCRIPT_FILENAME=/www/t.php", "SCRIPT_NAME=/t.php",
        "ORIG_SCRIPT_NAME=/t.php/1 +2", "PATH_INFO=/1%20+2",
        "ORIG_SCRIPT_FILENAME=/www/t.php/1%20+2", "PATH_TRANSLATED=/www/1%20+2",
    ];

    // fcgi-env-pif-apache-pp-sfp-decoding and -encoded.
    apache_proxy_pass_whose_path_is_decoded: DECODING, [
        "SCRIPT_FILENAME=proxy:fcgi://h:1/www/a%2Bb.php/1%202", "SCRIPT_NAME=/a+b.php/1 2",
        "DOCUMENT_ROOT=/www",
    ] => [
        "/www/a+b.php", "/a+b.php", "Admitted",
        "SCRIPT_FILENAME=/www/a+b.php", "SCRIPT_NAME=/a+b.php",
        "ORIG_SCRIPT_NAME=/a+b.php/1 2", "PATH_INFO=/1 2",
        "ORIG_SCRIPT_FILENAME=/www/a+b.php/1 2", "PATH_TRANSLATED=/www/1 2",
    ];

    apache_handler_whose_path_is_decoded: DECODING, [
        "SCRIPT_FILENAME=proxy:fcgi://h:1/www/t.php/1%202", "SCRIPT_NAME=/t.php",
        "PATH_INFO=/1 2", "PATH_TRANSLATED=/www/1 2", "DOCUMENT_ROOT=/www",
    ] => [
        "/www/t.php", "/t.php", "Admitted",
        "SCRIPT_FILENAME=/www/t.php", "ORIG_SCRIPT_FILENAME=/www/t.php/1 2",
        "ORIG_PATH_TRANSLATED=/www/1 2",
    ];

    a_path_without_apache_is_not_decoded: DECODING, [
        "SCRIPT_FILENAME=/www/a%2Bb.php", "SCRIPT_NAME=/a%2Bb.php",
    ] => ["/www/a%2Bb.php", "/a%2Bb.php", "Admitted"];

    apache_proxy_pass_with_encoded_files: DECODING_PATH_INFO, [
        "SCRIPT_FILENAME=proxy:fcgi://h:1/www/a%2Bb.php/1%202", "SCRIPT_NAME=/a%2Bb.php/1 2",
        "DOCUMENT_ROOT=/www",
    ] => [
        "/www/a%2Bb.php", "/a%2Bb.php", "Admitted",
        "SCRIPT_FILENAME=/www/a%2Bb.php", "SCRIPT_NAME=/a%2Bb.php",
        "ORIG_SCRIPT_NAME=/a%2Bb.php/1 2", "PATH_INFO=/1 2",
        "ORIG_SCRIPT_FILENAME=/www/a%2Bb.php/1%202", "PATH_TRANSLATED=/www/1 2",
    ];

    // GET /%2561dmin/secret.php and SetHandler (GH-19817): Apache has checked the decoded path, and
    // a path that is decoded again would be another one.
    apache_handler_whose_path_is_decoded_already: DECODING_PATH_INFO, [
        "SCRIPT_FILENAME=proxy:fcgi://localhost/www/%61dmin/secret.php",
        "SCRIPT_NAME=/%61dmin/secret.php", "DOCUMENT_ROOT=/www",
    ] => [
        "none", "/%61dmin/secret.php", "NoScript",
        "ORIG_SCRIPT_FILENAME=/www/%61dmin/secret.php", "-SCRIPT_FILENAME",
    ];

    apache_handler_with_a_percent_sign_in_the_path: DECODING_PATH_INFO, [
        "SCRIPT_FILENAME=proxy:fcgi://localhost/www/t%25.php", "SCRIPT_NAME=/t%25.php",
    ] => ["/www/t%25.php", "/t%25.php", "Admitted", "SCRIPT_FILENAME=/www/t%25.php"];

    apache_proxy_pass_with_an_encoded_folder: DECODING_PATH_INFO, [
        "SCRIPT_FILENAME=proxy:fcgi://localhost:9000/www/%2561dmin/secret.php/%2561",
        "SCRIPT_NAME=/%61dmin/secret.php/%61", "DOCUMENT_ROOT=/www",
    ] => [
        "none", "/%61dmin/secret.php/%61", "NoScript",
        "ORIG_SCRIPT_FILENAME=/www/%2561dmin/secret.php/%2561", "-SCRIPT_FILENAME",
    ];

    apache_proxy_pass_whose_path_info_is_decoded_once: DECODING_PATH_INFO, [
        "SCRIPT_FILENAME=proxy:fcgi://localhost:9000/www/t.php/%2561", "SCRIPT_NAME=/t.php/%61",
        "DOCUMENT_ROOT=/www",
    ] => [
        "/www/t.php", "/t.php", "Admitted",
        "SCRIPT_FILENAME=/www/t.php", "SCRIPT_NAME=/t.php",
        "ORIG_SCRIPT_NAME=/t.php/%61", "PATH_INFO=/%61",
        "ORIG_SCRIPT_FILENAME=/www/t.php/%2561", "PATH_TRANSLATED=/www/%61",
    ];

    apache_proxy_pass_with_another_path_in_the_script_name: MACHINE, [
        "SCRIPT_FILENAME=proxy:fcgi://h:1/www/t.php/x", "SCRIPT_NAME=/t.php/y",
    ] => [
        "/www/t.php", "/t.php/y", "Admitted",
        "SCRIPT_FILENAME=/www/t.php", "PATH_INFO=/x", "ORIG_SCRIPT_FILENAME=/www/t.php/x",
    ];

    apache_without_any_path: MACHINE, [
        "SCRIPT_FILENAME=proxy:fcgi://host?x", "SCRIPT_NAME=/t.php",
    ] => [
        "none", "/t.php", "NoScript",
        "ORIG_SCRIPT_FILENAME=proxy:fcgi://host", "-SCRIPT_FILENAME",
    ];

    apache_with_an_action: MACHINE, [
        "SCRIPT_FILENAME=/cgi/php", "SCRIPT_NAME=/cgi-bin/php", "PATH_INFO=/t.php/x",
        "PATH_TRANSLATED=/www/t.php/x", "REDIRECT_URL=/t.php/x", "DOCUMENT_ROOT=/www",
    ] => [
        "/www/t.php", "/t.php", "Admitted",
        "SCRIPT_FILENAME=/www/t.php", "SCRIPT_NAME=/t.php", "PATH_INFO=/x",
        "PATH_TRANSLATED=/www/x",
        "ORIG_PATH_INFO=/t.php/x", "ORIG_SCRIPT_NAME=/cgi-bin/php",
        "ORIG_SCRIPT_FILENAME=/cgi/php", "ORIG_PATH_TRANSLATED=/www/t.php/x",
    ];

    apache_with_an_action_for_a_file: MACHINE, [
        "SCRIPT_FILENAME=/cgi/php", "SCRIPT_NAME=/cgi-bin/php", "PATH_INFO=/t.php",
        "PATH_TRANSLATED=/www/t.php", "REDIRECT_URL=/t.php",
    ] => [
        "/www/t.php", "/t.php", "Admitted",
        "SCRIPT_FILENAME=/www/t.php", "SCRIPT_NAME=/t.php",
        "ORIG_SCRIPT_FILENAME=/cgi/php", "ORIG_PATH_INFO=/t.php",
        "ORIG_PATH_TRANSLATED=/www/t.php", "ORIG_SCRIPT_NAME=/cgi-bin/php",
        "-PATH_INFO", "-PATH_TRANSLATED",
    ];

    iis_puts_the_script_name_before_the_path_info: MACHINE, [
        "SCRIPT_FILENAME=/www/t.php", "SCRIPT_NAME=/t.php", "PATH_INFO=/t.php/x",
        "SERVER_SOFTWARE=Microsoft-IIS/7.5",
    ] => ["/www/t.php", "/t.php", "Admitted", "PATH_INFO=/x", "ORIG_PATH_INFO=/t.php/x"];

    iis_without_path_info: MACHINE, [
        "SCRIPT_FILENAME=/www/t.php", "SCRIPT_NAME=/t.php", "PATH_INFO=/t.php",
        "SERVER_SOFTWARE=Microsoft-IIS/7.5",
    ] => ["/www/t.php", "/t.php", "Admitted", "ORIG_PATH_INFO=/t.php", "-PATH_INFO"];

    only_a_translated_path: MACHINE, [
        "PATH_TRANSLATED=/www/t.php", "SCRIPT_NAME=/t.php",
    ] => ["/www/t.php", "/t.php", "Admitted", "SCRIPT_FILENAME=/www/t.php"];

    // bug69625-no-script-filename.
    no_path_at_all: MACHINE, ["SCRIPT_NAME=/t.php"] => ["none", "none", "NoScript"];

    an_empty_path: MACHINE, ["SCRIPT_FILENAME="] => ["", "none", "Extension"];

    a_script_that_is_not_there: MACHINE, [
        "SCRIPT_FILENAME=/www/no.php", "SCRIPT_NAME=/no.php",
    ] => [
        "none", "/no.php", "NoScript",
        "ORIG_SCRIPT_FILENAME=/www/no.php", "-SCRIPT_FILENAME",
    ];

    a_script_behind_a_file_that_is_none: MACHINE, [
        "SCRIPT_FILENAME=/www/photo.jpg/x.php", "SCRIPT_NAME=/photo.jpg/x.php",
    ] => [
        "/www/photo.jpg", "/photo.jpg/x.php", "Extension",
        "SCRIPT_FILENAME=/www/photo.jpg", "ORIG_SCRIPT_FILENAME=/www/photo.jpg/x.php",
    ];

    a_folder: MACHINE, ["SCRIPT_FILENAME=/www/a", "SCRIPT_NAME=/a"] =>
        ["/www/a", "/a", "Extension"];

    a_folder_with_its_slash: MACHINE, ["SCRIPT_FILENAME=/www/a/", "SCRIPT_NAME=/a/"] => [
        "none", "/a/", "NoScript", "ORIG_SCRIPT_FILENAME=/www/a/", "-SCRIPT_FILENAME",
    ];

    a_path_with_backslashes: MACHINE, ["SCRIPT_FILENAME=/www/t.php\\x", "SCRIPT_NAME=/t.php"] => [
        "none", "/t.php", "NoScript",
        "ORIG_SCRIPT_FILENAME=/www/t.php\\x", "-SCRIPT_FILENAME",
    ];

    the_document_root_of_php_ini: Machine { doc_root: Some(b"/srv"), ..MACHINE }, [
        "SCRIPT_FILENAME=/www/t.php", "SCRIPT_NAME=/t.php",
    ] => ["/www/t.php", "/t.php", "Admitted", "DOCUMENT_ROOT=/srv"];

    without_fixing_the_translated_path_comes_first: WITHOUT, [
        "SCRIPT_FILENAME=/www/no.php", "SCRIPT_NAME=/no.php", "PATH_INFO=/x",
        "PATH_TRANSLATED=/www/t.php",
    ] => ["/www/t.php", "/x", "Admitted"];

    without_fixing_and_with_the_path_discarded: Machine { discard_path: true, ..WITHOUT }, [
        "SCRIPT_FILENAME=/www/no.php", "SCRIPT_NAME=/no.php", "PATH_TRANSLATED=/www/t.php",
    ] => ["/www/no.php", "/no.php", "Admitted"];

    without_fixing_apache_is_trimmed_all_the_same: WITHOUT, [
        "SCRIPT_FILENAME=proxy:fcgi://h:9/www/t.php", "SCRIPT_NAME=/t.php", "PATH_INFO=/x",
    ] => ["/www/t.php", "/x", "Admitted", "SCRIPT_FILENAME=/www/t.php"];
}

#[test]
fn a_path_with_a_folder_above_is_dropped() {
    for (path, valid) in [
        ("/www/../t.php", false),
        ("../t.php", false),
        ("/www/..", false),
        ("/www/..t.php", true),
        ("/www/t..php", true),
        ("/www/...", true),
    ] {
        assert_eq!(is_valid(path.as_bytes()), valid, "{path}");
    }
}

#[test]
fn scripts_end_as_they_must() {
    let endings = [".php".to_owned(), ".phar".to_owned()];
    assert!(is_allowed(b"/t.php", &endings));
    assert!(is_allowed(b"/t.phar", &endings));
    assert!(!is_allowed(b".php", &endings));
    assert!(!is_allowed(b"/t.PHP", &endings));
    assert!(!is_allowed(b"/t.php5", &endings));
    assert!(is_allowed(b"/t.jpg", &[]));
}

#[test]
fn a_request_without_a_method_is_none_of_http() {
    let mut params = Params::new();
    params.clear_for_foreign();
    params.set(b"SCRIPT_FILENAME", b"/www/t.php").unwrap();
    let found = translate(&mut params, &MACHINE, &[]).unwrap();
    assert_eq!(found.admission, Admission::NoMethod);
}
