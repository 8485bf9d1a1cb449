//! Settings of a pool's PHP that count when PHP starts.

use maitred_tests::Target;
use maitred_tests::http;
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
