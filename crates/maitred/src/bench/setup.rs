//! Turns the command line into a plan.

use std::path::Path;
use std::sync::Arc;

use maitred_measure::arrivals::{DEFAULT_SECONDS, Profile, Spacing};
use maitred_measure::clock;
use maitred_measure::endpoints::{self, EndpointError, TlsTrust};
use maitred_measure::generate::{HTTP2_PROTOCOL, render};
use maitred_measure::marker::Marker;
use maitred_measure::plan::{
    Endpoint, Expect, Load, MAX_CONNECTIONS, MAX_STREAMS, Plan, Protocol, Request, Think,
};
use maitred_measure::replay;
use maitred_measure::request::{self, RequestSpec};
use maitred_measure::url::Url;
use maitred_measure::usage;
use maitred_text::humanize;

use super::bench_error::BenchError;
use super::options::{LoadOptions, RequestOptions, Run};

/// Default requests per second.
const DEFAULT_RATE: &str = "50";

/// Default maximum of connections of an open loop.
const DEFAULT_CONNECTIONS: usize = 10_000;

/// Timeout of a run that ends by itself, in seconds.
const UNTIL_IT_ENDS: f64 = 7.0 * 86_400.0;

/// Longest default warm-up, in seconds.
const MAX_DEFAULT_WARM_UP: f64 = 5.0;

/// Most threads by default.
const MAX_DEFAULT_THREADS: usize = 8;

/// Makes a plan, and checks that its servers accept connections.
///
/// # Errors
/// One sentence.
pub fn plan(run: &Run) -> Result<Arc<Plan>, BenchError> {
    let options = &run.request;
    let specs = specs(run)?;
    let first = specs
        .first()
        .ok_or_else(|| "name a URL to request, such as http://127.0.0.1:8080/".to_owned())?;
    let (load, seconds, warm_up) = load(&run.load, first)?;
    let threads = threads(&run.load, &load)?;
    let mut plan = Plan {
        endpoints: Vec::new(),
        protocol: protocol(options)?,
        requests: Vec::new(),
        in_order: options.in_order || options.har.is_some(),
        load,
        duration: clock::nanos(seconds + warm_up),
        warm_up: clock::nanos(warm_up),
        timeout: clock::nanos(humanize::parse_duration(&run.load.timeout)?),
        late_after: clock::nanos(humanize::parse_duration(&run.load.late_after)?),
        threads,
        seed: run.load.seed,
        keep_alive: !options.no_keepalive,
        follow: options.follow,
        cookies: options.cookies,
        expect: Expect {
            statuses: options.expect.clone(),
            marker: options.contains.as_deref().map(Marker::new),
        },
    };
    check_bounds(&plan)?;
    add_requests(&mut plan, specs, options)?;
    Ok(Arc::new(plan))
}

/// The protocol of requests.
fn protocol(options: &RequestOptions) -> Result<Protocol, String> {
    if let Some(root) = &options.fastcgi {
        return Ok(Protocol::Fastcgi { root: root.clone() });
    }
    if !options.http2 {
        return Ok(Protocol::Http1);
    }
    let streams = options.streams;
    if streams == 0 || streams > MAX_STREAMS {
        return Err(format!("--streams {streams}: expected 1 to {MAX_STREAMS}"));
    }
    if streams > 1 && options.no_keepalive {
        return Err(
            "--no-keepalive: a connection with several streams carries several requests".into()
        );
    }
    Ok(Protocol::Http2 { streams })
}

/// All requests, in the order of the command line.
fn specs(run: &Run) -> Result<Vec<RequestSpec>, String> {
    let options = &run.request;
    let places = run.urls.iter().map(|url| Url::read(url, None));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    let body = options.data.as_deref().map(request::read_body).transpose()?;
    let method = match (&options.method, &body) {
        (Some(method), _) => checked_method(method)?,
        (None, Some(_)) => "POST".to_owned(),
        (None, None) => "GET".to_owned(),
    };
    let headers = options.header.iter().map(|text| request::read_header(text));
    let headers = headers.collect::<Result<Vec<_>, _>>()?;
    let base = places.first().cloned();
    let mut specs: Vec<RequestSpec> = Vec::new();
    if let Some(list) = &options.urls_file {
        // With a list, a URL of the command line is the base of its paths.
        specs.extend(request::read_list(list, base.as_ref())?);
    } else {
        specs.extend(places.into_iter().map(|place| RequestSpec {
            method: method.clone(),
            body: body.clone().unwrap_or_default(),
            ..RequestSpec::get(place)
        }));
    }
    if let Some(har) = &options.har {
        specs = maitred_measure::har::read(har, base.as_ref())?;
    }
    for spec in &mut specs {
        let ours = headers.iter().cloned();
        spec.headers.extend(ours);
    }
    Ok(specs)
}

/// What is sent where the command line says nothing of a load, before it is: the server may serve
/// visitors.
pub fn default_load(run: &Run, plan: &Plan) -> Option<String> {
    let LoadOptions { rate, users, replay, .. } = &run.load;
    let is_chosen = rate.is_some() || users.is_some() || replay.is_some();
    (!is_chosen).then(|| {
        let seconds = humanize::duration(clock::seconds(plan.duration));
        format!(
            "sending {DEFAULT_RATE} requests/s for {seconds}; --rate, --users and --duration \
             choose another load"
        )
    })
}

fn checked_method(method: &str) -> Result<String, String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if method.is_empty() || !method.bytes().all(is_token) {
        return Err(format!("'{method}' is no method; expected one such as GET"));
    }
    Ok(method.to_owned())
}

/// The load, the measured seconds, and the seconds of warm-up before them.
fn load(options: &LoadOptions, first: &RequestSpec) -> Result<(Load, f64, f64), String> {
    let read = |text: &Option<String>| text.as_deref().map(humanize::parse_duration).transpose();
    let (asked, warm_up) = (read(&options.duration)?, read(&options.warm_up)?);
    if asked.is_some_and(|seconds| seconds <= 0.0) {
        return Err("--duration has to be longer than nothing".to_owned());
    }
    let tenth = |seconds: f64| (seconds / 10.0).min(MAX_DEFAULT_WARM_UP);
    if let Some(users) = options.users {
        let think = options.think.as_deref().map_or(Ok(Think::Nothing), think)?;
        let load = Load::Closed {
            users,
            think,
            ramp: clock::nanos(read(&options.ramp_up)?.unwrap_or(0.0)),
            requests: options.requests,
        };
        let counted = options.requests.is_some();
        let usual = if counted { UNTIL_IT_ENDS } else { DEFAULT_SECONDS };
        let seconds = asked.unwrap_or(usual);
        let usual = if counted { 0.0 } else { tenth(seconds) };
        return Ok((load, seconds, warm_up.unwrap_or(usual)));
    }
    let connections = connections(options.connections)?;
    if let Some(file) = &options.replay {
        let log = replay_of(file, options.speed, first)?;
        let seconds = asked.unwrap_or(UNTIL_IT_ENDS);
        return Ok((Load::Replay { log, connections }, seconds, warm_up.unwrap_or(0.0)));
    }
    let rate = options.rate.as_deref().unwrap_or(DEFAULT_RATE);
    let each = asked.unwrap_or(DEFAULT_SECONDS);
    let profile = Profile::read(rate, each, options.burst.as_deref())?;
    let is_level = !rate.contains("..") && !rate.contains('@');
    let own = if is_level { DEFAULT_SECONDS } else { profile.seconds() };
    let seconds = asked.unwrap_or(own);
    let usual = if is_level && options.burst.is_none() { tenth(seconds) } else { 0.0 };
    let spacing = if options.poisson { Spacing::Poisson } else { Spacing::Even };
    let load = Load::Open { profile, spacing, connections };
    Ok((load, seconds, warm_up.unwrap_or(usual)))
}

fn replay_of(file: &Path, speed: f64, first: &RequestSpec) -> Result<replay::Source, String> {
    if !(speed.is_finite() && speed > 0.0) {
        return Err(format!("--speed {speed}: expected a factor above 0"));
    }
    let log = replay::Source { file: file.to_owned(), like: first.clone(), speed };
    log.check()?;
    Ok(log)
}

/// Reads `1s`, `0.3s..1s` or `~1s`.
fn think(text: &str) -> Result<Think, String> {
    let nanos = |text: &str| humanize::parse_duration(text).map(clock::nanos);
    if let Some(mean) = text.strip_prefix('~') {
        return Ok(Think::Around(nanos(mean)?));
    }
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let (from, to) = (nanos(from)?, nanos(to)?);
    match (from, to) {
        (0, 0) => Ok(Think::Nothing),
        (from, to) if from <= to => Ok(Think::Between(from, to)),
        _ => Err(format!("--think {text}: the first time is the longer one")),
    }
}

/// The maximum of connections, within the limit of open files.
fn connections(asked: Option<usize>) -> Result<usize, String> {
    let allowed = usize::try_from(usage::descriptors()).unwrap_or(usize::MAX);
    match asked {
        None => Ok(DEFAULT_CONNECTIONS.min(allowed)),
        Some(0) => Err("--connections has to be at least 1".to_owned()),
        Some(asked) => within_descriptors(asked, allowed).map(|()| asked),
    }
}

fn within_descriptors(wanted: usize, allowed: usize) -> Result<(), String> {
    if wanted > allowed {
        return Err(format!(
            "{wanted} connections need more open files than this process may have: its limit \
             leaves {allowed}; raise it (ulimit -n), or use fewer"
        ));
    }
    Ok(())
}

fn threads(options: &LoadOptions, load: &Load) -> Result<usize, String> {
    let usual = (usage::processors() / 2).clamp(1, MAX_DEFAULT_THREADS);
    let asked = options.threads.unwrap_or(usual);
    if asked == 0 {
        return Err("--threads has to be at least 1".to_owned());
    }
    Ok(match load {
        // A log has one reader.
        Load::Replay { .. } => 1,
        Load::Open { connections, .. } => asked.min(*connections),
        Load::Closed { users, .. } => asked.min((*users).max(1)),
    })
}

fn check_bounds(plan: &Plan) -> Result<(), String> {
    let wanted = match &plan.load {
        Load::Open { connections, .. } | Load::Replay { connections, .. } => *connections,
        Load::Closed { users, .. } => *users,
    };
    if wanted == 0 || wanted > MAX_CONNECTIONS {
        return Err(format!("expected 1 to {MAX_CONNECTIONS} users or connections"));
    }
    let allowed = usize::try_from(usage::descriptors()).unwrap_or(usize::MAX);
    let connections = match &plan.load {
        Load::Closed { users, .. } => users.div_ceil(plan.protocol.streams()),
        Load::Open { .. } | Load::Replay { .. } => wanted,
    };
    within_descriptors(connections, allowed)?;
    if plan.timeout == 0 {
        return Err("--timeout has to be longer than nothing".to_owned());
    }
    Ok(())
}

/// Finds the servers of all requests, and renders their bytes.
fn add_requests(
    plan: &mut Plan,
    specs: Vec<RequestSpec>,
    options: &RequestOptions,
) -> Result<(), BenchError> {
    let trust = TlsTrust { insecure: options.insecure, ca: options.ca.clone() };
    let mut servers: Vec<Url> = Vec::new();
    for spec in specs {
        let known = servers.iter().position(|known| known.same_server(&spec.url));
        let endpoint = match known {
            Some(endpoint) => endpoint,
            None => {
                let endpoint = find(&spec.url, options, &trust, &plan.protocol)?;
                plan.endpoints.push(endpoint);
                servers.push(spec.url.clone());
                servers.len() - 1
            }
        };
        let encoded = render(plan, &spec, None, None)?;
        plan.requests.push(Request { spec, endpoint, encoded });
    }
    Ok(())
}

fn find(
    place: &Url,
    options: &RequestOptions,
    trust: &TlsTrust,
    protocol: &Protocol,
) -> Result<Endpoint, BenchError> {
    let protocols: &[&[u8]] = match protocol {
        Protocol::Http2 { .. } => &[HTTP2_PROTOCOL],
        Protocol::Http1 | Protocol::Fastcgi { .. } => &[b"http/1.1"],
    };
    let owned = options.yes_i_own_it;
    let found = endpoints::find(place, options.unix.as_deref(), trust, protocols, owned);
    found.map_err(|why| match why {
        EndpointError::Failed(why) => BenchError::Now(why),
        EndpointError::Remote(address) => BenchError::Usage(format!(
            "{address} is on another machine: a load test of a server that is not yours is an \
             attack; if it is yours, add --yes-i-own-it"
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn think_times_are_read_in_every_form() {
        for (text, wanted) in [
            ("0", Some(Think::Nothing)),
            ("1s", Some(Think::Between(clock::SECOND, clock::SECOND))),
            ("0.3s..1s", Some(Think::Between(300_000_000, clock::SECOND))),
            ("~2s", Some(Think::Around(2 * clock::SECOND))),
            ("2s..1s", None),
            ("long", None),
        ] {
            assert_eq!(think(text).ok(), wanted, "{text}");
        }
    }

    #[test]
    fn more_connections_than_open_files_are_refused_with_what_to_do() {
        let why = within_descriptors(2_000, 960).expect_err("too many");
        assert!(why.contains("its limit leaves 960; raise it (ulimit -n)"), "{why}");
    }
}
