//! Settings of a pool's PHP that count when PHP starts.

use maitred_tests::Target;
use maitred_tests::http::{self, Request};
use maitred_tests::server::{Setup, document_root};

/// Whether OPcache works, with how much memory, what becomes of assertions, and whether a script
/// can turn OPcache off.
const SAYS: &str = "<?php echo json_encode([opcache_get_status(false)['opcache_enabled'] ?? null,
    opcache_get_configuration()['directives']['opcache.memory_consumption'] >> 20,
    ini_get('zend.assertions'), @ini_set('opcache.enable', '0')]);";

#[test]
fn what_php_takes_at_its_start_alone_may_be_set_for_a_pool() {
    let root = document_root(&[("index.php", SAYS)]);
    let values = "php_admin_value = { \"opcache.enable\" = 1, \"opcache.memory_consumption\" = 16, \
                  \"zend.assertions\" = -1 }";
    let server = Setup::new(root.path()).pool(values).start();
    assert_eq!(http::get(server.address(), "/").text(), "[true,16,\"-1\",false]");
    // PHP would complain of being told again.
    let said = server.log().since(0).join("\n");
    assert!(!said.contains("temporary") && !said.contains("zend.assertions"), "{said}");
    server.stop();
}

/// The mappings of libphp's code in a worker, as the lines of proc_pid_maps(5). The first has most
/// of it; OPcache as a part of libphp has another one.
#[cfg(target_arch = "x86_64")]
const CODE: &str = "<?php foreach (file('/proc/self/maps') as $line)
    if (str_contains($line, ' r-xp ') && str_contains($line, 'libphp')) echo $line;";

#[cfg(target_arch = "x86_64")]
#[test]
fn all_pools_share_one_copy_of_libphps_code_that_calls_its_functions_directly() {
    let root = document_root(&[("index.php", CODE)]);
    let path = root.path();
    let site = |pool: &str| {
        format!("[[sites]]\nhosts = [\"{pool}.test\"]\nroot = {path:?}\npool = \"{pool}\"\n")
    };
    let pools = "[pools.other]\n[pools.plain]\ndirect_calls = false\n";
    let more = format!("{pools}{}{}", site("other"), site("plain"));
    let server = Setup::new(path).hosts(&["www.test"]).site(&more).start();
    let code_of = |host: &str| {
        let request = Request::new("GET", "/").header("Host", host).header("Connection", "close");
        http::ask(server.address(), &request).text()
    };
    let (www, other, plain) = (code_of("www.test"), code_of("other.test"), code_of("plain.test"));
    assert!(www.contains("/memfd:maitred-libphp (deleted)"), "{www}");
    // The file and its offset; the addresses differ.
    let file = |lines: &str| {
        let first = lines.lines().next().unwrap_or_default();
        first.split_whitespace().skip(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(file(&www), file(&other));
    assert!(plain.contains("/libphp8") && !plain.contains("memfd"), "{plain}");
    server.stop();
}
