//! nginx's configuration as the checks see it.

use super::*;

fn read(text: &str) -> Nginx {
    read_all(text).0
}

/// With what cannot be read.
fn read_all(text: &str) -> (Nginx, Vec<(String, Unknown)>) {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("etc/nginx/conf.d")).unwrap();
    std::fs::write(root.path().join("etc/nginx/nginx.conf"), text).unwrap();
    let further = "upstream php { server unix:/var/run/php/a.sock; keepalive 8; }\n";
    std::fs::write(root.path().join("etc/nginx/conf.d/php.conf"), further).unwrap();
    let world = World::new(Some(root.path()), Duration::from_secs(60));
    let mut broken = Vec::new();
    let nginx = nginx(&world, &Unknown::because("no"), &mut broken).unwrap();
    (nginx, broken)
}

#[test]
fn what_is_set_outside_holds_inside_unless_it_is_set_there() {
    let nginx = read(
        "worker_processes 2; events { worker_connections 4096; }\n\
         http { include conf.d/*.conf; fastcgi_read_timeout 40s; # a comment; with { signs\n\
         server { server_name a.example; root \"/srv/a b\";\n\
         location ~ \\.php$ { fastcgi_pass php; fastcgi_keep_conn on; }\n\
         location = /status { allow 127.0.0.1; deny all; fastcgi_read_timeout 2m;\n\
           fastcgi_pass 127.0.0.1:9000; } } }",
    );
    assert_eq!((nginx.workers, nginx.connections), (Some(2), 4096));
    assert_eq!(nginx.roots, ["/srv/a b"]);
    let [first, second] = &nginx.passes[..] else { panic!("{:?}", nginx.passes) };
    assert_eq!(first.to, ["/run/php/a.sock"]);
    assert_eq!((first.kept, first.read_timeout.as_secs()), (8, 40));
    assert!(!first.is_restricted && second.is_restricted);
    assert_eq!((second.location.as_str(), second.read_timeout.as_secs()), ("= /status", 120));
    assert_eq!(second.place, "/etc/nginx/nginx.conf:6");
}

#[test]
fn a_cache_is_read_with_all_that_belongs_to_it() {
    let nginx = read(
        "http { fastcgi_cache_key \"$scheme$host\"; fastcgi_ignore_headers Expires Set-Cookie;\n\
         fastcgi_cache_use_stale error updating; proxy_cache files;\n\
         server { server_name a b; location / { fastcgi_cache pages; fastcgi_cache_valid any 1m;\n\
         fastcgi_no_cache $cookie_sid; fastcgi_cache_lock on; fastcgi_pass unix:/run/a.sock; } } }",
    );
    let cache = nginx.passes[0].cache.clone().unwrap();
    assert_eq!((cache.zone.as_str(), cache.key.as_str()), ("pages", "$scheme$host"));
    assert_eq!(cache.ignored, ["expires", "set-cookie"]);
    assert_eq!((cache.bypasses.len(), cache.hosts.len()), (1, 2));
    assert!(cache.keeps_any_status && cache.locks && cache.sends_stale);
    assert_eq!(nginx.idle_proxy_caches.len(), 1);
}

#[test]
fn times_are_nginxs() {
    let seconds = |text: &str| time(text).map(|time| time.as_secs_f64());
    for (text, expected) in [
        ("60", 60.0),
        ("500ms", 0.5),
        ("1m", 60.0),
        ("1d", 86_400.0),
        ("1w", 604_800.0),
        ("1h30m", 5_400.0),
        ("1h 30m 5", 5_405.0),
        ("1M", 2_592_000.0),
        ("1y", 31_536_000.0),
        ("18446744073709551615y", f64::from(i32::MAX)),
        ("18446744073709551615 18446744073709551615ms", f64::from(i32::MAX)),
    ] {
        assert_eq!(seconds(text), Some(expected), "{text}");
    }
    for text in ["", "x", "1x", "m", "-1"] {
        assert_eq!(seconds(text), None, "{text}");
    }
    let nginx =
        read("http { server { location / { fastcgi_read_timeout 1d; fastcgi_pass unix:/a; } } }");
    assert_eq!(nginx.passes[0].read_timeout.as_secs(), 86_400);
}

#[test]
fn blocks_that_lie_too_deep_are_said_once_and_what_follows_is_read() {
    let deep = "a{".repeat(40_000);
    let (nginx, broken) = read_all(&deep);
    assert_eq!(nginx.passes.len(), 0);
    assert!(matches!(&broken[..], [(_, why)] if why.0.contains("more than 20 deep")), "{broken:?}");
    let closed = "}".repeat(40_000);
    let after = "http { server { location / { fastcgi_pass unix:/a; } } }";
    assert_eq!(read(&format!("{deep}{closed}{after}")).passes.len(), 1);
}

#[test]
fn signs_within_words_are_no_signs() {
    let nginx =
        read("http { server { location ~ \"^/a{2}$\" { set $x ${y}z; fastcgi_pass unix:/a; } } }");
    assert_eq!(nginx.passes[0].location, "~ ^/a{2}$");
    assert_eq!(read("http { server { root /srv").roots, Vec::<String>::new());
    assert_eq!(read("}}}} ;;; {").passes.len(), 0);
}
