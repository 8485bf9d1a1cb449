//! `maitred tune --php`: settings of PHP are tried in a pool of maitred, proven, and restored.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use maitred_tests::outside::text;
use maitred_tests::processes::{self, Process};
use maitred_tests::server::{
    Server, Setup, WEB_USER, document_root, give_to_web_user, is_root, public_folder, user_ids,
    write_file,
};
use maitred_tests::{Target, booted, http, maitred_program, tuned, wait};
use serde_json::Value;
use tempfile::TempDir;

/// Classes that are autoloaded in each request.
const CLASSES: usize = 120;

/// Computes next to nothing beside its classes.
const PAGE: &str = "<?php
spl_autoload_register(fn ($name) => require __DIR__ . '/../src/' . $name . '.php');
for ($n = 1; $n <= 120; $n++) { $class = \"C$n\"; $sum = ($sum ?? 0) + $class::ONE; }
echo \"sum $sum\\n\", uniqid('nonce '), \"\\nend\";
";

/// Prints which of its classes exist at the start of the request.
const TELLS: &str = "<?php
$early = class_exists('C1', false) ? 'early' : 'late';
spl_autoload_register(fn ($name) => require __DIR__ . '/../src/' . $name . '.php');
for ($n = 1; $n <= 120; $n++) { $class = \"C$n\"; $sum = ($sum ?? 0) + $class::ONE; }
echo \"$early\\nend\";
";

fn application(page: &str) -> TempDir {
    with_methods(page, 8)
}

/// The more methods its classes have, the longer they compile.
fn with_methods(page: &str, methods: usize) -> TempDir {
    let root = document_root(&[]);
    for n in 1..=CLASSES {
        let methods: String = (0..methods)
            .map(|m| format!("public function m{n}_{m}($a) {{ return $a + {m}; }} "))
            .collect();
        let class = format!("<?php class C{n} extends ArrayObject {{ const ONE = 1; {methods} }}");
        write_file(root.path(), &format!("src/C{n}.php"), class.as_bytes());
    }
    write_file(root.path(), "public/index.php", page.as_bytes());
    give_to_web_user(root.path());
    root
}

fn serve(root: &Path, pool: &str) -> Server {
    let setup = Setup::new(&root.join("public")).workers(4);
    let setup = setup.site("front_controller = \"/index.php\"");
    setup.pool(pool).start()
}

fn command(server: &Server, php: &str, further: &[&str]) -> Command {
    let mut command = Command::new(maitred_program());
    command.arg("tune").arg("--config").arg(server.configuration());
    command.arg(format!("{}/", server.base_url())).args([php, "--time", "60s"]).args(further);
    command.stdin(Stdio::null());
    command
}

fn tune(server: &Server, php: &str, further: &[&str]) -> Output {
    command(server, php, further).output().expect("the program can be started")
}

fn report(output: &Output) -> Value {
    let said = text(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {said}"))
}

fn trial<'r>(report: &'r Value, term: &str) -> &'r Value {
    let trials = report["trials"].as_array().expect("trials");
    let found = trials.iter().find(|trial| trial["term"] == term);
    found.unwrap_or_else(|| panic!("{term}: {report}"))
}

#[test]
fn preloading_is_proven_where_classes_are_autoloaded_and_the_file_is_as_it_was() {
    let root = application(PAGE);
    let server = serve(root.path(), "php_admin_value = { \"opcache.jit\" = \"off\" }");
    let before = fs::read(server.configuration()).expect("a file");
    // A machine that does ten other things may hide a gain.
    let (output, report) = wait::until_within("a gain", wait::DEADLINE * 5, || {
        let output = tune(&server, "--php=preload,jit", &["--json"]);
        let report = report(&output);
        (trial(&report, "preload")["gain"] == true).then_some((output, report))
    });
    assert_eq!(report["schema"], "maitred-tune-php/1");
    let preload = trial(&report, "preload");
    let ratio = preload["cpu"]["mean"].as_f64().expect("a ratio");
    assert!(ratio < 0.9 && preload["pairs"].as_u64() >= Some(6), "{report}");
    assert_eq!(report["verdict"], "gain");
    assert_eq!(output.status.code(), Some(0));
    let file = report["file"].as_str().expect("lines");
    assert!(file.contains("[pools.") && file.ends_with("\npreload = true"), "{file}");
    let not_tried = report["not_tried"][0].as_str().expect("a sentence");
    assert_eq!(not_tried, "opcache.jit = tracing: the configuration sets it");
    assert_eq!(fs::read(server.configuration()).expect("a file"), before);
    server.stop();
}

#[test]
fn a_page_that_differs_with_a_setting_rejects_it() {
    let root = application(TELLS);
    let server = serve(root.path(), "php_admin_value = { \"opcache.jit\" = \"off\" }");
    let output = tune(&server, "--php=preload,jit", &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}{}", text(&output.stderr));
    assert!(said.contains("differs: it lacks the line 'late'"), "{said}");
    assert!(said.contains("no setting is proven to be better"), "{said}");
    server.stop();
}

#[test]
fn a_setting_with_which_a_pool_does_not_boot_is_rejected_and_the_site_is_served() {
    let boot = "if (!ini_get('opcache.validate_timestamps')) { throw new Exception('blind'); }";
    let root = booted::application(boot, "echo 'page';");
    let server = booted::snapshot(root.path()).workers(2).start();
    let before = fs::read(server.configuration()).expect("a file");
    let output = tune(&server, "--php=validate_timestamps", &["--deploys-reload", "--json"]);
    let report = report(&output);
    assert_eq!((&report["verdict"], output.status.code()), (&"no_gain".into(), Some(3)));
    let why = trial(&report, "validate_timestamps")["why"].as_str().expect("a reason");
    assert!(why.contains("blind") && why.contains("its settings are restored"), "{why}");
    assert_eq!(fs::read(server.configuration()).expect("a file"), before);
    assert_eq!(http::get(server.address(), "/").text(), "page");
    server.stop();
}

#[test]
fn an_interrupted_trial_restores_the_file() {
    let root = application(PAGE);
    let server = serve(root.path(), "");
    let before = fs::read(server.configuration()).expect("a file");
    let mut going = tuned::Going::start(command(&server, "--php=preload", &[]));
    going.until("preload: preload");
    going.signal(maitred_tests::processes::Signal::INT);
    let (said, code) = going.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("all settings are restored"), "{said}");
    assert_eq!(fs::read(server.configuration()).expect("a file"), before);
    server.stop();
}

/// The sentences about settings that are not tried.
fn not_tried(report: &Value) -> Vec<String> {
    let all = report["not_tried"].as_array().expect("sentences");
    all.iter().map(|why| why.as_str().expect("a sentence").to_owned()).collect()
}

fn expect_stays(report: &Value, entry: &str) {
    let expected = format!("{entry}: it suffices: ");
    let all = not_tried(report);
    assert!(all.iter().any(|why| why.starts_with(&expected)), "{entry}: {all:?}");
}

#[test]
fn a_size_that_a_pool_reports_as_too_small_is_proposed_until_it_suffices() {
    let root = with_methods(PAGE, 100);
    let setup = |strings: &str| {
        let setup = Setup::new(&root.path().join("public")).workers(4);
        let setup = setup.site("front_controller = \"/index.php\"");
        setup.pool("php_admin_value.\"opcache.file_update_protection\" = 0").pool(strings)
    };
    let server = setup("php_admin_value.\"opcache.interned_strings_buffer\" = 1").start();
    let before = fs::read(server.configuration()).expect("a file");
    let output = tune(&server, "--php=sizes", &["--json"]);
    let small = report(&output);
    let strings = trial(&small, "interned_strings_buffer");
    assert_eq!((&strings["gain"], output.status.code()), (&true.into(), Some(0)), "{small}");
    let why = strings["why"].as_str().expect("a reason");
    assert!(why.contains(" of 1 MiB are in use") && why.contains("with it it suffices"), "{why}");
    let line = strings["lines"][0].as_str().expect("a line");
    assert!(small["file"].as_str().is_some_and(|file| file.ends_with(line)), "{small}");
    expect_stays(&small, "opcache.memory_consumption");
    expect_stays(&small, "opcache.max_accelerated_files");
    expect_stays(&small, "realpath_cache_size");
    assert_eq!(fs::read(server.configuration()).expect("a file"), before);
    server.configure(&setup(line));
    server.reload();
    let output = tune(&server, "--php=sizes,validate_timestamps", &["--json"]);
    let enough = report(&output);
    expect_stays(&enough, "opcache.interned_strings_buffer");
    assert_eq!(enough["trials"], Value::Array(Vec::new()), "{enough}");
    assert_eq!((&enough["verdict"], output.status.code()), (&"nothing_to_gain".into(), Some(0)));
    let why = not_tried(&enough).pop().expect("a sentence");
    assert!(why.contains("a changed file would go unnoticed"), "{why}");
    assert!(why.contains("`maitred reload www`, --deploys-reload tries it"), "{why}");
    server.stop();
}

#[test]
fn a_file_cache_is_judged_by_the_first_pages_of_cold_starts_and_its_folder_is_removed() {
    let root = with_methods(PAGE, 100);
    let unprotected = "php_admin_value.\"opcache.file_update_protection\" = 0";
    let server = serve(root.path(), &[unprotected, if is_root() { DECOY } else { "" }].concat());
    if is_root() {
        let title = "maitred-php: worker pool www seat 99";
        let is_decoy = |process: &Process| process.title.starts_with(title);
        wait::until_true("the decoy", || processes::all().iter().any(is_decoy));
    }
    // Its workers are younger now than what has their title.
    let reload = Command::new(maitred_program())
        .args(["reload", "www", "--admin-socket"])
        .arg(server.admin_socket())
        .status();
    assert!(reload.expect("maitred runs").success(), "{}", server.log_text());
    let before = fs::read(server.configuration()).expect("a file");
    let mut going = command(&server, "--php=file_cache", &["--json", "--pool", "www"]);
    let going = going.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut going = going.expect("the program can be started");
    let owner = is_root().then(|| owner_of_trial(&mut going)).flatten();
    let output = going.wait_with_output().expect("it ends");
    let report = report(&output);
    let expected = is_root().then(|| user_ids(WEB_USER).0);
    assert_eq!(owner, expected, "the folder is of another user: {}", text(&output.stderr));
    let files = trial(&report, "file_cache");
    assert!(files["first_page"]["ratio"]["mean"].as_f64().is_some(), "no ratio: {report}");
    let lines: Vec<_> = files["lines"].as_array().into_iter().flatten().collect();
    let lines: Vec<_> = lines.into_iter().filter_map(|line| line.as_str()).collect();
    let lines = lines.join("\n");
    assert!(lines.contains("-m 700 /var/cache/www-opcache\n"), "{report}");
    let line = "\nphp_admin_value.\"opcache.file_cache\" = \"/var/cache/www-opcache\"";
    assert!(lines.ends_with(line), "{report}");
    // Other processes of the machine decide whether a handful of first pages prove it.
    let is_proposed = report["file"].as_str().is_some_and(|file| file.ends_with(line));
    assert_eq!(files["gain"].as_bool(), Some(is_proposed), "{report}");
    assert_eq!(fs::read(server.configuration()).expect("a file"), before);
    for folder in ["/var/cache".into(), std::env::temp_dir()] {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let own = entries.filter(|entry| is_of_a_trial(&entry.file_name().to_string_lossy()));
        assert_eq!(own.count(), 0);
    }
    server.stop();
}

/// A pool of another user, with a process that has the title of a worker of `www`.
const DECOY: &str = "
[pools.other]
user = \"nobody\"
[[pools.other.commands]]
name = \"decoy\"
command = [\"bash\", \"-c\", \"exec -a 'maitred-php: worker pool www seat 99' sleep 1000\"]
";

/// Who gets the folder of compiled scripts of a tuning, once root has given it away.
fn owner_of_trial(going: &mut Child) -> Option<u32> {
    let folder = Path::new("/var/cache").join(format!("maitred-tune-{}-www", going.id()));
    wait::until_within("the folder of a trial", wait::DEADLINE * 5, || {
        let owner = fs::metadata(&folder).ok().map(|found| found.uid()).filter(|uid| *uid != 0);
        let has_ended = !matches!(going.try_wait(), Ok(None));
        (owner.is_some() || has_ended).then_some(owner)
    })
}

/// Whether it is the folder of a tuning that does not run any more.
fn is_of_a_trial(name: &str) -> bool {
    let pid = name.strip_prefix("maitred-tune-").and_then(|rest| rest.strip_suffix("-www"));
    pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
}

#[test]
fn php_fpm_has_no_setting_to_try() {
    let root = document_root(&[("index.php", "<?php echo 'page';")]);
    give_to_web_user(root.path());
    let pools = public_folder();
    let peer = tuned::peer(root.path(), pools.path()).start();
    let config = peer.fpm_socket().with_file_name("fpm.conf");
    let mut command = Command::new(maitred_program());
    command.arg("tune").arg("--php-fpm").arg(config).arg(peer.base_url()).arg("--php");
    let output = command.stdin(Stdio::null()).output().expect("the program can be started");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("starts one PHP for all pools"), "{said}");
}
