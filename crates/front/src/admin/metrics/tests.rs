use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use maitred_control::admin::{CachedSite, PageTier, ProxyServer};
use maitred_control::nodes::NodeStatus;
use maitred_control::scale::{NodeScale, PoolScale};
use maitred_scoreboard::{ApplicationMemory, Copies, OpcacheStats, create_application_memory};

use super::*;
use crate::pool::route_metrics::RouteStats;

fn pool(name: &str) -> PoolFigures {
    let reading = Reading {
        queued: 2,
        busy: 3,
        seated: 4,
        signals: vec![(11, 1)],
        cache: (name == "b").then(|| (OpcacheStats::default(), maitred_scoreboard::now())),
        copies: (name == "b").then(Copies::default),
        ..Reading::default()
    };
    PoolFigures {
        name: name.to_owned(),
        queue_limit: 1000,
        workers_limit: 8,
        reading,
        spool_bytes: 5,
        classes: vec![("/cart/*".to_owned(), RouteStats::default())],
        application: Some(Arc::new(application(name))),
    }
}

/// The memory of an application with seven refusals, since it was full.
fn application(pool: &str) -> ApplicationMemory {
    const FULL_AT: u64 = 4 * 8;
    let file = File::from(create_application_memory(pool).unwrap());
    file.write_all_at(&7u64.to_ne_bytes(), FULL_AT).unwrap();
    ApplicationMemory::open(file).unwrap()
}

fn figures() -> FrontFigures {
    let proxy = ProxyServer {
        server: "unix:/run/\"a\".sock".to_owned(),
        requests: [("2xx".to_owned(), 5)].into(),
        request_seconds: 0.5,
        active_requests: 1,
        connections: 2,
    };
    FrontFigures {
        page_cache: Some(cache()),
        proxies: vec![proxy],
        readiness: None,
        scale: Some(scale()),
        routes: Vec::new(),
    }
}

fn scale() -> NodeScale {
    let pools = ["a", "b"].map(|name| (name.to_owned(), PoolScale::default()));
    NodeScale { pools: pools.into(), ..NodeScale::default() }
}

#[test]
fn two_nodes_with_one_name_are_one_series() {
    let node = |name: &str, saturation| NodeStatus {
        name: name.to_owned(),
        saturation,
        ready: true,
        ..NodeStatus::default()
    };
    let list = vec![node("a", 0.5), node("a", 0.7), node("b", 0.25)];
    let mut out = Text::new(Format::Prometheus);
    of_nodes(&mut out, &NodesStatus { list, ..NodesStatus::default() });
    let text = out.finish();
    let count = text.lines().filter(|line| line.starts_with("maitred_node_saturation{")).count();
    assert_eq!(count, 2, "{text}");
    assert!(text.contains("maitred_node_saturation{node=\"a\"} 0.5\n"), "{text}");
    assert!(text.contains("maitred_node_ready{node=\"b\"} 1\n"), "{text}");
}

fn cache() -> PageCache {
    let count = |name: &str, count| [(name.to_owned(), count)].into();
    PageCache {
        disk: Some(PageTier::default()),
        filling: 2,
        sites: vec![CachedSite {
            site: "*.a.example".to_owned(),
            requests: count("hit", 3),
            not_stored: count("set-cookie", 0),
            saved_script_seconds: 1.5,
            ..CachedSite::default()
        }],
        ..PageCache::default()
    }
}

#[test]
fn each_family_is_declared_once_before_its_samples_whatever_the_pools() {
    for form in [Format::Prometheus, Format::OpenMetrics] {
        let clients = Clients {
            memory_bytes: 7,
            rejected_requests: 0,
            rejected_connections: 1,
            spool_bytes: 5,
            spool_limit_bytes: Some(9),
        };
        let text = all(&[pool("a"), pool("b")], &figures(), clients, form).finish();
        let mut declared: Vec<&str> = Vec::new();
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.split(' ').next().unwrap();
                assert!(!declared.contains(&name), "{name} twice");
                declared.push(name);
            } else if !line.starts_with('#') {
                let last = declared.last().unwrap();
                assert!(line.starts_with(last), "{line} under {last}");
                let (_, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(text.contains("maitred_pool_workers{pool=\"b\",state=\"idle\"} 1\n"));
        assert!(text.contains("maitred_pool_worker_crashes_total{pool=\"a\",signal=\"11\"} 1"));
        let route = "route_seconds_total{pool=\"b\",route=\"/cart/*\",part=\"cpu\"} 0\n";
        assert!(text.contains(route));
        assert!(text.contains("opcache_restarts_total{pool=\"b\",reason=\"hash\"} 0\n"));
        assert!(!text.contains("opcache_scripts{pool=\"a\""), "not known");
        assert!(text.contains("copies_spare{pool=\"b\"} 1\n"));
        assert!(text.contains("copies_not_rewound_total{pool=\"b\",reason=\"forked\"} 0\n"));
        assert!(text.contains("application_refused_total{pool=\"a\",reason=\"full\"} 7\n"));
        for line in [
            "maitred_cache_requests_total{site=\"*.a.example\",result=\"hit\"} 3\n",
            "maitred_cache_saved_script_seconds_total{site=\"*.a.example\"} 1.5\n",
            "maitred_cache_pages{tier=\"disk\"} 0\n",
            "maitred_cache_filling 2\n",
            "maitred_proxy_requests_total{server=\"unix:/run/\\\"a\\\".sock\",result=\"2xx\"} 5\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(!text.contains("set-cookie"), "it never came");
        assert_eq!(text.ends_with("# EOF\n"), form == Format::OpenMetrics);
    }
}
