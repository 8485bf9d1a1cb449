//! `[pool_defaults]`: settings of every pool that does not set them itself.

use maitred_config::ProcessManager;

use crate::folder::Folder;
use crate::mistakes::{SITE, refused};

#[test]
fn a_pool_has_the_defaults_that_it_does_not_set() {
    let config = Folder::new().good(&format!(
        "[pool_defaults]\npm = \"ondemand\"\nmax_children = 5\n[pools.a]\n[pools.b]\n\
         max_children = 9\n{SITE}pool = \"a\"\n"
    ));
    let pools: Vec<_> = config.pools.iter().map(|pool| (pool.pm, pool.max_children)).collect();
    let on_demand = ProcessManager::Ondemand;
    assert_eq!(pools, [(on_demand, Some(5)), (on_demand, Some(9))]);
}

#[test]
fn the_implicit_pool_has_the_defaults_too() {
    let config = Folder::new().good(&format!("[pool_defaults]\nmax_children = 5\n{SITE}"));
    assert_eq!(config.pools[0].max_children, Some(5));
}

#[test]
fn php_settings_and_variables_are_merged_by_name_and_the_pools_own_wins() {
    let config = Folder::new().good(&format!(
        "[pool_defaults]\nphp_admin_value = {{ memory_limit = \"128M\", error_log = \"/a\", \
         session.name = \"A\", session.gc_maxlifetime = 1 }}\n\
         php_flag = {{ display_errors = true }}\nenv = {{ A = \"1\", B = \"1\" }}\n\
         [pools.www]\nphp_value = {{ memory_limit = \"1G\", date.timezone = \"UTC\", \
         \"session.name\" = \"B\" }}\n\
         env = {{ B = \"2\" }}\n{SITE}"
    ));
    let pool = &config.pools[0];
    let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let values = [
        ("date.timezone", "UTC"),
        ("display_errors", "1"),
        ("memory_limit", "1G"),
        ("session.name", "B"),
    ];
    assert_eq!(pool.php_value, values.map(|(name, value)| text(name, value)).into());
    assert_eq!(
        pool.php_admin_value,
        [text("error_log", "/a"), text("session.gc_maxlifetime", "1")].into(),
        "no table hides the other"
    );
    let mut env = pool.env.clone();
    env.sort();
    assert_eq!(env, [text("A", "1"), text("B", "2")]);
}

#[test]
fn a_wrong_default_is_reported_once() {
    refused(
        &format!(
            "[pool_defaults]\nmax_children = 0\nmax_childen = 3\nlisten = \"/run/x.sock\"\n\
             [pools.a]\n[pools.b]\n{SITE}pool = \"a\"\n"
        ),
        &[
            "2:16: `max_children` is the number 0; expected a whole number from 1 to 10000",
            "3:1: unknown setting `max_childen` in [pool_defaults]; did you mean `max_children`?",
            "4:10: `listen` is an address of one pool; write it in [pools.NAME]",
        ],
    );
    refused(
        &format!("pool_defaults = 1\n{SITE}"),
        &["1:17: `pool_defaults` is no table; write a section [pool_defaults]"],
    );
}

#[test]
fn a_default_that_does_not_fit_to_a_pool_names_the_pool() {
    refused(
        &format!(
            "[pool_defaults]\npm = \"dynamic\"\nmax_children = 8\nmin_spare_servers = 1\n\
             max_spare_servers = 4\n[pools.a]\n[pools.b]\nmax_children = 2\n{SITE}pool = \"a\"\n"
        ),
        &["5:21: of pool `b`: `max_spare_servers` is the number 4, which is more than \
           `max_children`, 2"],
    );
}

#[test]
fn defaults_of_listeners_apply_to_pools_with_such_a_listener() {
    let config = Folder::new().good(&format!(
        "[pool_defaults]\nlisten_owner = \"root\"\nlisten_allowed_clients = \"127.0.0.1\"\n\
         [pools.a]\n[pools.b]\nlisten = \"/run/b.sock\"\n[pools.c]\nlisten = \"127.0.0.1:9000\"\n\
         {SITE}pool = \"a\"\n"
    ));
    let owners = config.pools.iter().map(|pool| pool.listener.as_ref()?.owner.clone());
    assert_eq!(owners.collect::<Vec<_>>(), [None, Some("root".to_owned()), None]);
    assert!(config.pools[2].listener.as_ref().unwrap().allowed_clients.is_some());
}
