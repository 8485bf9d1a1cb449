//! Directives: of the pool, of php.ini's sections, of `.user.ini`, of the request.

mod php;

use php::{Php, response};

#[test]
fn scripts_are_told_they_run_under_php_fpm() {
    assert_eq!(
        response("<?php echo php_sapi_name(), PHP_SAPI, extension_loaded('cgi-fcgi');").body(),
        "fpm-fcgifpm-fcgi1"
    );
}

#[test]
fn a_value_of_the_pool_can_be_changed_and_an_admin_value_cannot() {
    let php = Php::new()
        .ini("memory_limit=64M\nprecision=14")
        .with(&["--value", "precision=5", "--admin-value", "memory_limit=99M"])
        .file(
            "t.php",
            "<?php echo ini_get('memory_limit'), ' ', ini_get('precision'), ' ';
            var_dump(ini_set('memory_limit', '1G'), ini_set('precision', '6'));
            echo ini_get('memory_limit'), ' ', ini_get('precision');",
        );
    let run = php.serve(&["t.php", "t.php"]);
    let expected = "99M 5 bool(false)\nstring(1) \"5\"\n99M 6";
    assert_eq!(run.bodies(), [expected, expected]);
}

#[test]
fn error_reporting_may_be_an_expression() {
    let php = Php::new()
        .with(&["--admin-value", "error_reporting=E_ALL & ~E_NOTICE"])
        .file("t.php", "<?php echo ini_get('error_reporting') - (E_ALL & ~E_NOTICE);");
    assert_eq!(php.serve(&["t.php"]).one().body(), "0");
}

#[test]
fn disabled_functions_of_the_pool_add_to_those_of_php_ini() {
    let php = Php::new()
        .ini("disable_functions=exec")
        .with(&["--admin-value", "disable_functions=system, passthru"])
        .file(
            "t.php",
            "<?php foreach (['exec', 'system', 'passthru', 'strlen'] as $f)
            var_dump(function_exists($f));",
        );
    let body = php.serve(&["t.php"]).one().body();
    assert_eq!(body, "bool(false)\nbool(false)\nbool(false)\nbool(true)\n");
}

#[test]
fn an_extension_is_loaded_for_the_pool() {
    let php = Php::new()
        .with(&["--value", "extension=ctype"])
        .file("t.php", "<?php var_dump(extension_loaded('ctype'));");
    assert_eq!(php.serve(&["t.php"]).one().body(), "bool(true)\n");
}

#[test]
fn a_directive_php_does_not_know_is_named() {
    let php = Php::new().with(&["--value", "no.such=1"]).file("t.php", "");
    let output = php.serve(&["t.php"]).output;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "refused: no.such\n");
}

#[test]
fn a_value_that_php_takes_at_its_start_alone_holds_and_is_no_mistake() {
    let php = Php::new()
        .opcache()
        .ini("opcache.enable=0\nzend.assertions=1")
        .with(&[
            "--admin-value",
            "opcache.enable=1",
            "--admin-value",
            "opcache.memory_consumption=16",
            "--value",
            "zend.assertions=-1",
        ])
        .file(
            "t.php",
            "<?php echo opcache_get_status(false)['opcache_enabled'], ' ',
            opcache_get_configuration()['directives']['opcache.memory_consumption'] >> 20, ' ',
            ini_get('zend.assertions'), ' '; var_dump(ini_set('opcache.enable', '0'));",
        );
    let run = php.serve(&["t.php"]);
    assert_eq!(run.bodies(), ["1 16 -1 bool(false)\n"]);
    let said = String::from_utf8_lossy(&run.output.stderr);
    assert!(!said.contains("temporary"), "{said}");
}

#[test]
fn a_value_that_php_never_takes_is_named() {
    let few = "opcache.max_accelerated_files=1";
    let php = Php::new().opcache().with(&["--admin-value", few]).file("t.php", "");
    let said = php.serve(&["t.php"]).output.stderr;
    let said = String::from_utf8_lossy(&said);
    let named = "refused: opcache.max_accelerated_files";
    assert!(said.lines().any(|line| line == named), "{said}");
}

#[test]
fn user_ini_files_hold_from_the_document_root_down() {
    let php = Php::new()
        .file(".user.ini", "precision=3\nserialize_precision=7")
        .file("a/.user.ini", "precision=4")
        .file("a/b/t.php", "<?php echo ini_get('precision'), ini_get('serialize_precision');")
        .file("t.php", "<?php echo ini_get('precision'), ini_get('serialize_precision');");
    assert_eq!(php.serve(&["a/b/t.php", "t.php", "a/b/t.php"]).bodies(), ["47", "37", "47"]);
}

#[test]
fn a_user_ini_file_cannot_change_an_admin_value() {
    let php = Php::new()
        .with(&["--admin-value", "precision=9"])
        .file(".user.ini", "precision=3")
        .file("t.php", "<?php echo ini_get('precision');");
    assert_eq!(php.serve(&["t.php"]).one().body(), "9");
}

#[test]
fn a_user_ini_file_is_remembered_for_its_time() {
    let change = "<?php file_put_contents('.user.ini', 'precision=5'); echo ini_get('precision');";
    let php = Php::new().file(".user.ini", "precision=3").file("t.php", change);
    assert_eq!(php.serve(&["t.php", "t.php"]).bodies(), ["3", "3"]);
}

#[test]
fn user_ini_files_can_be_switched_off() {
    let php = Php::new()
        .ini("user_ini.filename=\nprecision=14")
        .file(".user.ini", "precision=3")
        .file("t.php", "<?php echo ini_get('precision');");
    assert_eq!(php.serve(&["t.php"]).one().body(), "14");
}

#[test]
fn sections_of_php_ini_hold_for_their_folder_and_host() {
    let php = Php::new().file("a/t.php", "<?php echo ini_get('precision');");
    let php = php.file("t.php", "<?php echo ini_get('precision'), ini_get('serialize_precision');");
    let section = format!(
        "precision=14\n[PATH={}/a]\nprecision=6\n[HOST=localhost]\nserialize_precision=9",
        php.root().display()
    );
    let php = php.ini(&section);
    assert_eq!(php.serve(&["a/t.php", "t.php"]).bodies(), ["6", "149"]);
}

#[test]
fn settings_of_htaccess_files_are_those_that_a_folder_may_set() {
    let lines = "precision=6\nupload_max_filesize=9M\nmemory_limit=-1\nopen_basedir=/\n\
                 enable_dl=0\ndisable_functions=strrev\nextension=/no/such.so\nno_such=1\n\
                 serialize_precision=8";
    let php = Php::new().file(
        "t.php",
        "<?php foreach (['precision', 'upload_max_filesize', 'memory_limit', 'open_basedir',
                'enable_dl', 'serialize_precision'] as $name) echo ini_get($name), ' ';
            echo strrev('ba');",
    );
    let folder = php.root().display().to_string();
    let php = php
        .ini("enable_dl=1\nserialize_precision=17")
        .with(&["--value", "precision=10", "--admin-value", "memory_limit=55M"])
        .with(&["--admin-value", &format!("open_basedir={folder}")])
        .param("PHP_VALUE", lines);
    let run = php.serve(&["t.php", "t.php"]);
    let body = format!("6 9M 55M {folder} 1 8 ab");
    assert_eq!(run.bodies(), [body.clone(), body]);
    let logs: Vec<String> = run.requests.iter().map(php::Request::log).collect();
    assert_eq!(logs, ["", ""]);
}

#[test]
fn values_of_htaccess_files_are_literal() {
    let lines = "session.save_path=5;/x\nurl_rewriter.tags=a=href,area=(href)&\"\n\
                 error_append_string=${HOME} # on \n=1\n\nno value\narg_separator.output=\n\
                 error_reporting=E_ALL\nprecision=7";
    let script = "<?php echo json_encode(array_map('ini_get', ['session.save_path',
        'url_rewriter.tags', 'error_append_string', 'error_reporting', 'precision']),
        JSON_UNESCAPED_SLASHES);";
    let php = Php::new().param("PHP_VALUE", lines).file("t.php", script);
    assert_eq!(
        php.serve(&["t.php"]).one().body(),
        r#"["5;/x","a=href,area=(href)&\"","${HOME} # on ","E_ALL","7"]"#
    );
}

#[test]
fn opcache_works_in_a_forked_child_with_the_memory_of_the_pool() {
    let php = Php::new()
        .with(&["--fork"])
        .opcache()
        .ini("opcache.file_update_protection=0")
        .with(&["--admin-value", "opcache.memory_consumption=16"])
        .file(
            "t.php",
            "<?php $s = opcache_get_status(false); $m = $s['memory_usage'];
            echo $s['opcache_statistics']['hits'] > 0 ? 'hit ' : 'miss ';
            echo round(($m['used_memory'] + $m['free_memory']) / 1048576);",
        );
    assert_eq!(php.serve(&["t.php", "t.php", "t.php"]).bodies(), ["miss 16", "hit 16", "hit 16"]);
}

#[test]
fn errors_are_shown_as_php_ini_says() {
    let script = "<?php echo $missing;";
    let shown = Php::new()
        .ini("display_errors=1\nhtml_errors=0")
        .file("t.php", script)
        .serve(&["t.php"])
        .one();
    assert!(shown.body().contains("Warning: Undefined variable $missing"), "{}", shown.body());
    let hidden = Php::new()
        .ini("display_errors=0\nlog_errors=1")
        .file("t.php", script)
        .serve(&["t.php"])
        .one();
    assert_eq!(hidden.body(), "");
    assert!(
        hidden.log().starts_with("PHP message: PHP Warning:  Undefined variable"),
        "{}",
        hidden.log()
    );
}

#[test]
fn a_preloaded_class_is_there_in_every_request() {
    let php = Php::new()
        .opcache()
        .file("preload.php", "<?php class Preloaded { const HERE = 'here'; }")
        .file("t.php", "<?php echo Preloaded::HERE;");
    let preload = format!(
        "opcache.preload={}\nopcache.preload_user={}",
        php.path("preload.php").display(),
        php::owner(php.root()),
    );
    let run = php.ini(&preload).serve(&["t.php", "t.php"]);
    assert_eq!(run.bodies(), ["here", "here"]);
}
