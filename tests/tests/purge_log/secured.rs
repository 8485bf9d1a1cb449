//! A Redis with TLS and users.

use maitred_tests::ports::free_address;
use maitred_tests::redis::Redis;
use maitred_tests::server::public_folder;
use maitred_tests::tls::Authority;
use maitred_tests::wait;

use super::{Place, await_everywhere, await_hit, site};

#[test]
fn a_redis_with_tls_and_users_is_used_and_a_wrong_password_is_not_repeated() {
    let (root, authority, folder) = (site(), Authority::new("redis"), public_folder());
    let pair = authority.issue("redis", &["localhost"]);
    let port = free_address().port().to_string();
    let (cert, key) = (pair.cert.display().to_string(), pair.key.display().to_string());
    let commands = "+auth +info +select +multi +exec +time +hget +hset +hmget +hgetall +hdel +del \
                    +set +get +xadd +xread +xrange +xrevrange";
    let user = format!("maitred on >right ~maitred:* resetchannels {commands}");
    let flags = ["--tls-port", &port, "--tls-cert-file", &cert, "--tls-key-file", &key];
    let users = ["--tls-auth-clients", "no", "--user"].into_iter().chain(user.split(' '));
    let redis = Redis::with(&flags.into_iter().chain(users).collect::<Vec<_>>());
    let password = |text: &str| {
        let file = folder.path().join(text);
        std::fs::write(&file, format!("{text}\n")).expect("a password can be written");
        file
    };
    let log = |text: &str| {
        let (password, ca) = (password(text), authority.ca());
        format!(
            "url = \"rediss://localhost:{port}\", username = \"maitred\", password_file = \
             {password:?}, ca_file = {ca:?}"
        )
    };
    let places = [Place::new(0, false), Place::new(1, false)];
    let node = places[0].setup(root.path(), &log("right")).start();
    await_everywhere(&node, "a.example/a");
    await_hit(&node, "/a");
    assert_eq!(redis.cli(&["EXISTS", "maitred:purges"]), "1\n");
    let wrong = places[1].setup(root.path(), &log("mistaken")).start();
    let line = wrong.expect_log(0, "the purge log cannot be reached");
    assert!(line.contains("username or password are wrong"), "{line}");
    wait::until_true("no secret in the log", || {
        let lines = wrong.log().lines();
        !lines.iter().any(|line| line.contains("mistaken"))
    });
}
