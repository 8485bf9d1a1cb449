//! Requests with a web server's own variables, and PHP as php-fpm has it.

mod php;

use php::{Php, Request};

fn foreign() -> Php {
    Php::new().with(&["--foreign"])
}

fn show(names: &str) -> String {
    format!("<?php foreach (explode(' ', '{names}') as $i) echo ini_get($i), ' ';")
}

fn bodies(requests: &[Request]) -> Vec<String> {
    requests.iter().map(Request::body).collect()
}

#[test]
fn scripts_see_the_variables_in_the_reverse_of_their_order() {
    let php = foreign().param("HTTP_X_A", "1").param("HTTP_X_B", "2").file(
        "t.php",
        "<?php $k = array_keys($_SERVER); $h = array_keys(getallheaders());
        echo array_search('HTTP_X_A', $k) - array_search('HTTP_X_B', $k), ' ',
            array_search('REQUEST_METHOD', $k) > array_search('HTTP_X_A', $k) ? 'after' : 'before',
            ' ', implode(',', array_slice($h, 0, 2)), ' ',
            array_search('PHP_SELF', $k) > array_search('HTTP_X_A', $k) ? 'end' : '';",
    );
    assert_eq!(php.serve(&["t.php"]).one().body(), "1 after X-B,X-A end");
}

#[test]
fn php_value_holds_for_its_request_before_the_body_is_read() {
    let php = foreign()
        .ini("display_errors=0\nlog_errors=1")
        .param("PHP_VALUE", "post_max_size = 10\nprecision=5")
        .file("body", "a=12345678901234567890")
        .file("t.php", "<?php echo ini_get('precision'), count($_POST);");
    let body = php.path("body").display().to_string();
    let php =
        php.with(&["--body", &body]).param("CONTENT_TYPE", "application/x-www-form-urlencoded");
    let response = php.serve(&["t.php"]).one();
    assert!(response.body().ends_with("50"), "{}", response.body());
    assert!(response.log().contains("exceeds the limit of 10 bytes"), "{}", response.log());
}

#[test]
fn user_ini_changes_what_php_value_says_but_not_php_admin_value() {
    let php = foreign()
        .ini("precision=14")
        .param("PHP_VALUE", "precision=5")
        .param("PHP_ADMIN_VALUE", "serialize_precision=6")
        .file(".user.ini", "precision=3\nserialize_precision=3")
        .file("t.php", &show("precision serialize_precision"));
    assert_eq!(php.serve(&["t.php"]).one().body(), "3 6 ");
}

#[test]
fn a_script_may_not_change_php_admin_value_of_its_request() {
    let php = foreign().param("PHP_ADMIN_VALUE", "memory_limit=55M").file(
        "t.php",
        "<?php echo ini_get('memory_limit'); var_dump(ini_set('memory_limit', '66M'));",
    );
    assert_eq!(php.serve(&["t.php"]).one().body(), "55Mbool(false)\n");
}

#[test]
fn the_web_server_may_set_what_the_pool_has_locked() {
    let php = foreign()
        .with(&["--admin-value", "memory_limit=40M"])
        .param("PHP_VALUE", "memory_limit=50M\nenable_dl=0")
        .file("t.php", &show("memory_limit enable_dl"));
    assert_eq!(php.serve(&["t.php"]).one().body(), "50M 0 ");
}

#[test]
fn a_disabled_function_is_gone_and_the_process_spent() {
    let script = "<?php var_dump(function_exists('exec'));";
    let php = foreign().param("PHP_ADMIN_VALUE", "disable_functions=exec").file("t.php", script);
    let run = php.serve(&["t.php", "t.php"]);
    assert_eq!(bodies(&run.requests), ["bool(false)\n"]);
    assert!(run.requests[0].served.ends_with(" spent"), "{}", run.requests[0].served);
}

#[test]
fn lines_that_set_nothing_are_told() {
    let php = foreign()
        .param("PHP_VALUE", "no_such=1\nprecision\na[]=2\nprecision=7")
        .file("t.php", &show("precision"));
    let response = php.serve(&["t.php"]).one();
    assert_eq!(response.body(), "7 ");
    for message in [
        "Passing INI directive through FastCGI: unable to set 'no_such'",
        "Passing INI directive through FastCGI: empty value for key 'precision'",
        "Passing INI directive through FastCGI: only classic entries are allowed",
    ] {
        assert!(response.log().contains(message), "{}", response.log());
    }
}

#[test]
fn the_directives_that_decide_on_paths_are_those_of_the_request() {
    let php = foreign()
        .param("PHP_ADMIN_VALUE", "cgi.fix_pathinfo=0")
        .param("PATH_INFO", "/more")
        .file("t.php", "<?php echo $_SERVER['PHP_SELF'];");
    assert_eq!(php.serve(&["t.php"]).one().body(), "/t.php");
}

#[test]
fn what_is_not_to_be_run_is_answered_as_by_php_fpm() {
    let php = foreign().file("t.txt", "<?php echo 1;").file("t.php", "<?php echo 1;");
    let run = php.serve(&["none.php", "t.txt"]);
    let (missing, refused) = (&run.requests[0], &run.requests[1]);
    assert!(missing.head().starts_with("Status: 404 Not Found\r\n"), "{}", missing.head());
    assert_eq!(missing.body(), "File not found.\n");
    assert_eq!(missing.log(), "Primary script unknown");
    assert!(refused.head().starts_with("Status: 403 Forbidden\r\n"), "{}", refused.head());
    assert_eq!(refused.body(), "Access denied.\n");
    assert_eq!(
        refused.log(),
        format!(
            "Access to the script '{}' has been denied (see security.limit_extensions)",
            php.path("t.txt").display()
        )
    );
    let nothing = php.param("REQUEST_METHOD", "-").serve(&["t.php"]).one();
    assert_eq!(nothing.body(), "");
}

#[test]
fn a_body_may_be_in_a_file() {
    let php = foreign()
        .file("body", "from the file")
        .file("t.php", "<?php echo file_get_contents('php://input');");
    let file = php.path("body").display().to_string();
    let php = php
        .param("REQUEST_BODY_FILE", &file)
        .param("REQUEST_METHOD", "POST")
        .param("CONTENT_LENGTH", "13")
        .param("CONTENT_TYPE", "text/plain");
    let run = php.serve(&["t.php", "t.php"]);
    assert_eq!(bodies(&run.requests), ["from the file", "from the file"]);
    let gone = php.param("REQUEST_BODY_FILE", "/no/such").serve(&["t.php"]).one();
    assert!(gone.body().contains("REQUEST_BODY_FILE: open('/no/such') failed"), "{}", gone.body());
}

#[test]
fn the_length_of_a_body_is_read_as_atol_reads_it() {
    let php = foreign()
        .file("body", "0123456789")
        .file("t.php", "<?php echo file_get_contents('php://input');");
    let body = php.path("body").display().to_string();
    let php = php.with(&["--body", &body]).param("CONTENT_TYPE", "text/plain");
    for (length, expected) in [(" +4x", "0123"), ("-4", ""), ("x", ""), ("", "")] {
        let php = Php::new().with(&["--foreign", "--body", &body, "--param", "CONTENT_TYPE=a/b"]);
        let php = php
            .param("CONTENT_LENGTH", length)
            .file("t.php", "<?php echo file_get_contents('php://input');");
        assert_eq!(php.serve(&["t.php"]).one().body(), expected, "{length}");
    }
    assert_eq!(php.serve(&["t.php"]).one().body(), "0123456789");
}

const PCNTL: &str = "<?php var_dump(extension_loaded('pcntl'), function_exists('pcntl_fork'),
    in_array('pcntl', get_loaded_extensions()), defined('SIGTERM'), get_extension_funcs('pcntl'));";

#[test]
fn pcntl_is_absent_in_php_fpm_unless_it_is_switched_on() {
    let php = Php::new().file("t.php", PCNTL);
    let without = php.with(&["--fpm"]).serve(&["t.php"]).one().body();
    assert_eq!(without, "bool(false)\n".repeat(5));
    for switch in [["--define", "maitred.pcntl=1"], ["--admin-value", "maitred.pcntl=1"]] {
        let php = Php::new().file("t.php", PCNTL).with(&["--fpm"]).with(&switch);
        let run = php.serve(&["t.php"]);
        let said = String::from_utf8_lossy(&run.output.stderr).into_owned();
        assert!(run.one().body().starts_with(&"bool(true)\n".repeat(4)));
        assert_eq!(said, "");
    }
    let outside = Php::new().file("t.php", PCNTL).serve(&["t.php"]).one();
    assert!(outside.body().starts_with(&"bool(true)\n".repeat(4)));
}

#[test]
fn a_list_of_disabled_functions_that_has_programs_leaves_out_those_of_pcntl() {
    let script = "<?php foreach (['exec', 'pcntl_exec', 'pcntl_fork', 'pcntl_alarm'] as $name) {
        echo (int) function_exists($name); }";
    let switch = ["--define", "maitred.pcntl=1"];
    for (how, list, switch, there) in [
        ("--define", "disable_functions=exec, system", &[][..], "0001"),
        ("--define", "disable_functions=phpinfo,Popen", &[], "1001"),
        ("--define", "disable_functions=phpinfo,execute", &[], "1111"),
        ("--admin-value", "disable_functions=passthru,exec", &[], "0001"),
        ("--admin-value", "disable_functions=phpinfo", &[], "1111"),
        ("--define", "disable_functions=exec", &switch, "0111"),
        ("--admin-value", "disable_functions=exec", &switch, "0111"),
    ] {
        let php = Php::new().file("t.php", script).with(&[how, list]).with(switch);
        assert_eq!(php.serve(&["t.php"]).one().body(), there, "{how} {list}");
    }
}

#[test]
fn every_module_has_its_own_constants_when_one_is_left_out() {
    let php = Php::new().with(&["--fpm"]).file(
        "t.php",
        "<?php $c = get_defined_constants(true);
        var_dump(isset($c['Core']['E_ALL']), isset($c['sodium']) == extension_loaded('sodium'),
            array_diff(array_keys($c), get_loaded_extensions(), ['user', 'Core']),
            isset($c['cgi-fcgi']), function_exists('chroot'));",
    );
    assert_eq!(
        php.serve(&["t.php"]).one().body(),
        "bool(true)\nbool(true)\narray(0) {\n}\nbool(false)\nbool(false)\n"
    );
}

#[test]
fn phpinfo_has_php_fpms_names() {
    let php = Php::new().ini("html_errors=0").with(&["--fpm"]).file(
        "t.php",
        "<?php ob_start(); phpinfo(INFO_GENERAL | INFO_MODULES); $i = strip_tags(ob_get_clean());
        echo preg_match('/Server API FPM.FastCGI/', $i), preg_match('/php-fpm active/', $i);",
    );
    assert_eq!(php.serve(&["t.php"]).one().body(), "11");
}

#[test]
fn what_the_command_line_defines_comes_after_php_ini_and_before_the_pool() {
    let php = Php::new()
        .ini("precision=1\nserialize_precision=1\nerror_reporting=1")
        .with(&["--define", "precision=2", "--define", "serialize_precision=2"])
        .with(&["--define", "error_reporting=E_ALL & ~E_NOTICE"])
        .with(&["--value", "serialize_precision=3"])
        .file(
            "t.php",
            // E_ALL is less from PHP 8.4 on.
            "<?php echo ini_get('precision'), ' ', ini_get('serialize_precision'), ' ',
            ini_get('error_reporting') - (E_ALL & ~E_NOTICE);",
        );
    assert_eq!(php.serve(&["t.php"]).one().body(), "2 3 0");
}
