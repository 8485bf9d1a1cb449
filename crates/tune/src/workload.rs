//! What is asked for: URLs, a list of them, an access log, or the links of a page; each tried once before
//! anything is measured.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use maitred_doctor::read::is_file;
use maitred_measure::endpoints::{self, EndpointError, TlsTrust};
use maitred_measure::generate::render;
use maitred_measure::plan::{Endpoint, Expect, Load, Plan, Protocol, Request, Think};
use maitred_measure::request::{self, RequestSpec};
use maitred_measure::response::Marker;
use maitred_measure::url::Url;
use maitred_measure::{clock, har, replay};

mod links;
mod prober;

use crate::course::profile::Route;
use crate::runner::Abort;
use links::crawl;
pub use prober::Prober;
use prober::STOPPED;

/// Most URLs that are asked for; those that are asked for most.
const MOST_URLS: usize = 50;

/// Most lines of a log that are looked at.
const MOST_LINES: usize = 1_000_000;

/// Bytes of a page in which links, markers and forms are looked for.
const MOST_BYTES: usize = 1 << 20;

/// The share of the requests that have to get the expected answer.
const FITTING: f64 = 0.95;

/// Words of paths that do something besides showing a page, even by GET.
const DOING: [&str; 22] = [
    "logout",
    "log-out",
    "logoff",
    "signout",
    "sign-out",
    "delete",
    "remove",
    "destroy",
    "trash",
    "unsubscribe",
    "add-to-",
    "add_to_",
    "addto",
    "add-item",
    "add_item",
    "undo_item",
    "empty-cart",
    "empty_cart",
    "apply_coupon",
    "_wpnonce=",
    "admin-ajax.php",
    "wp-cron.php",
];

/// How often it is looked whether a page is served.
const LOOK: Duration = Duration::from_millis(100);

/// Most paths that are named of those that are not asked for.
const MOST_NAMED: usize = 5;

/// What is asked for, and what is expected.
#[derive(Debug, Clone, Default)]
pub struct WorkloadOptions {
    /// URLs.
    pub urls: Vec<String>,
    /// A list of them, as `maitred bench` has it.
    pub urls_file: Option<PathBuf>,
    /// An access log.
    pub access_log: Option<PathBuf>,
    /// What a browser has saved.
    pub har: Option<PathBuf>,
    /// Users keep cookies.
    pub cookies: bool,
    /// The pages that the first URL links to.
    pub crawl: bool,
    /// Header fields, as `Name: value`.
    pub headers: Vec<String>,
    /// Statuses; none: 200 to 299.
    pub expect: Vec<u16>,
    /// A text of every right page.
    pub contains: Option<String>,
    /// Other methods than GET and HEAD may be sent.
    pub allow_write: bool,
    /// The site is on another machine, and is the user's own.
    pub owned: bool,
    /// Whom to trust.
    pub trust: TlsTrust,
}

/// What will be asked for.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The requests, ready to send; load and times are still to be encoded.
    pub plan: Plan,
    /// Where they come from, in words.
    pub source: String,
    /// What a log or a page has and is not asked for, since it may change something.
    pub left_out: Vec<String>,
    /// The first of them, which is asked to see whether the site is there.
    pub first: (Endpoint, Url),
    /// How long that took, in seconds.
    pub took: Option<f64>,
}

/// Finds out what to ask for, and whether the site answers it as it should.
///
/// # Errors
/// One sentence, or that somebody has encoded to stop.
pub fn prepare(asked: &WorkloadOptions, prober: &mut Prober) -> Result<Workload, Abort> {
    match look(asked, prober) {
        Ok(workload) => Ok(workload),
        Err(_) if prober.is_stopped() => Err(Abort::Stopped),
        Err(why) => Err(Abort::Failed(why)),
    }
}

fn look(asked: &WorkloadOptions, prober: &mut Prober) -> Result<Workload, String> {
    let (mut specs, source) = specs(asked)?;
    let mut left_out = Vec::new();
    if let Some(saved) = asked.access_log.as_ref().or(asked.har.as_ref()) {
        specs = only_showing(specs, &mut left_out);
        if specs.is_empty() {
            return Err(format!(
                "{} has only requests that may change something, such as {}; name with --urls-file what may \
                 be asked for",
                saved.display(),
                left_out.first().map_or("", String::as_str)
            ));
        }
    }
    let first = specs
        .first()
        .ok_or("name a URL to ask for, such as http://127.0.0.1/")?
        .url
        .clone();
    let endpoint = find(&first, asked)?;
    if asked.crawl {
        let linked = crawl(prober, &endpoint, &first)?;
        specs.extend(only_showing(linked, &mut left_out));
    }
    specs.truncate(MOST_URLS);
    if let Some(other) = specs.iter().find(|spec| !spec.url.same_server(&first)) {
        return Err(format!(
            "{} is on another server than {first}; one server is tuned at a time",
            other.url
        ));
    }
    let writes = specs
        .iter()
        .find(|spec| !matches!(spec.method.as_str(), "GET" | "HEAD"));
    if let Some(spec) = writes.filter(|_| !asked.allow_write) {
        return Err(format!(
            "{} may change something, many thousand times; say --allow-write if it may",
            spec.label()
        ));
    }
    let expect = Expect {
        statuses: asked.expect.clone(),
        marker: asked.contains.as_deref().map(Marker::new),
    };
    let FittingRequests {
        specs,
        took,
        unasked,
    } = fitting(prober, &endpoint, specs, asked, &expect)?;
    let late = match unasked {
        0 => String::new(),
        some => format!(" ({some} more were left out: there was no time to look at them)"),
    };
    let source = format!(
        "{} from {source}{late}",
        maitred_text::humanize::plural(specs.len() as u64, "URL")
    );
    Ok(Workload {
        took,
        first: (
            endpoint.clone(),
            specs.first().map_or(first, |spec| spec.url.clone()),
        ),
        plan: plan(endpoint, specs, asked, expect)?,
        source,
        left_out,
    })
}

impl Workload {
    /// What is asked for, in the plan's order, and how often each is.
    pub fn routes(&self) -> Vec<Route> {
        let all: f64 = self.plan.requests.iter().map(|each| each.spec.weight).sum();
        let routes = self.plan.requests.iter().map(|request| Route {
            name: request.spec.label(),
            share: request.spec.weight / all.max(f64::MIN_POSITIVE),
        });
        routes.collect()
    }

    /// Whether the first page gets the answer that is expected, within a time.
    ///
    /// # Errors
    /// What it gets instead.
    pub fn is_served(&self, prober: &mut Prober, within: Duration) -> Result<(), String> {
        let (endpoint, url) = &self.first;
        let began = Instant::now();
        // What is written already is looked at to the end.
        let never = AtomicBool::new(false);
        loop {
            let why = match prober.ask_within(endpoint, url, within, &never) {
                Ok((status, _)) => match self.plan.expect.judge(status, true, None) {
                    Some(cause) => format!("{url} answers {cause}"),
                    None => return Ok(()),
                },
                Err(why) => format!("{url}: {why}"),
            };
            if began.elapsed() > within {
                return Err(why);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// What is not asked for, in a sentence.
    pub fn left_out(&self) -> Option<String> {
        let named = self.left_out.iter().take(MOST_NAMED);
        let mut named = named.cloned().collect::<Vec<_>>().join(", ");
        match self.left_out.len() {
            0 => return None,
            all if all > MOST_NAMED => named += &format!(" and {} more", all - MOST_NAMED),
            _ => (),
        }
        Some(format!(
            "not asked for, since it may change something: {named}; --urls-file names what may be asked for"
        ))
    }
}

/// Those that only show something, as far as their paths tell; the others are named.
fn only_showing(specs: Vec<RequestSpec>, left_out: &mut Vec<String>) -> Vec<RequestSpec> {
    let (doing, showing): (Vec<RequestSpec>, Vec<RequestSpec>) =
        specs.into_iter().partition(|spec| does(&spec.url.path));
    left_out.extend(doing.into_iter().map(|spec| spec.url.path));
    showing
}

fn does(path: &str) -> bool {
    let small = path.to_ascii_lowercase();
    DOING.iter().any(|word| small.contains(word))
}

fn specs(asked: &WorkloadOptions) -> Result<(Vec<RequestSpec>, &'static str), String> {
    let urls = asked.urls.iter().map(|url| Url::read(url, None));
    let urls = urls.collect::<Result<Vec<_>, _>>()?;
    if let Some(list) = &asked.urls_file {
        return Ok((request::read_list(list, urls.first())?, "a list"));
    }
    if let Some(file) = &asked.har {
        let all = har::read(file, urls.first())?;
        let scripts = all.into_iter().filter(|spec| !is_file(&spec.url.path));
        return Ok((scripts.collect(), "a HAR file"));
    }
    if let Some(log) = &asked.access_log {
        let like = urls
            .first()
            .ok_or("an access log names no server: give its URL, too")?;
        let all = replay::popular(log, &RequestSpec::get(like.clone()), MOST_LINES)?;
        let scripts: Vec<RequestSpec> = all
            .into_iter()
            .filter(|spec| !is_file(&spec.url.path))
            .collect();
        if scripts.is_empty() {
            return Err(format!(
                "{} has requests for files only, none for a script",
                log.display()
            ));
        }
        return Ok((scripts, "an access log"));
    }
    let source = if asked.crawl {
        "the links of a page"
    } else {
        "the command line"
    };
    Ok((urls.into_iter().map(RequestSpec::get).collect(), source))
}

fn find(url: &Url, asked: &WorkloadOptions) -> Result<Endpoint, String> {
    let found = endpoints::find(url, None, &asked.trust, &[b"http/1.1"], asked.owned);
    found.map_err(|why| match why {
        EndpointError::Failed(why) => why,
        EndpointError::Remote(address) => format!(
            "{address} is on another machine, whose settings cannot be measured from here; if the pool \
             here is what answers there (a balancer of yours), say --yes-i-own-it"
        ),
    })
}

/// Those that get the expected answer, how long the first of them took, and how many there was no time to ask for.
struct FittingRequests {
    specs: Vec<RequestSpec>,
    took: Option<f64>,
    unasked: usize,
}

/// Those that get the expected answer, if nearly all do.
fn fitting(
    prober: &mut Prober,
    endpoint: &Endpoint,
    specs: Vec<RequestSpec>,
    asked: &WorkloadOptions,
    expect: &Expect,
) -> Result<FittingRequests, String> {
    let (mut all, mut right, mut took, mut unasked) = (0.0, Vec::new(), None, 0);
    let whole: f64 = specs.iter().map(|spec| spec.weight).sum();
    let (mut wrong, mut lost): (Option<String>, f64) = (None, 0.0);
    for spec in specs {
        if prober.is_stopped() {
            return Err(STOPPED.to_owned());
        }
        // Whatever the others get, it is too few: each may take a minute to say nothing.
        if let Some(why) = wrong.as_ref().filter(|_| lost > (1.0 - FITTING) * whole) {
            return Err(too_few(why, "at most ", (whole - lost) / whole));
        }
        if !right.is_empty() && prober.is_late() {
            unasked += 1;
            continue;
        }
        if !matches!(spec.method.as_str(), "GET") {
            all += spec.weight;
            right.push(spec);
            continue;
        }
        let answer = prober.ask(endpoint, &spec.url);
        if answer.is_err() && !right.is_empty() && prober.is_late() {
            unasked += 1;
            continue;
        }
        all += spec.weight;
        let why = match answer {
            Ok((status, body, seconds)) => {
                took = took.or(Some(seconds));
                why_not(&spec.url, status, &body, asked, expect)
            }
            Err(why) => Some(format!("{}: {why}", spec.url)),
        };
        match why {
            None => right.push(spec),
            Some(why) => {
                lost += spec.weight;
                wrong = wrong.or(Some(why));
            }
        }
    }
    let fits: f64 = right.iter().map(|spec| spec.weight).sum();
    match wrong {
        Some(why) if fits < FITTING * all => {
            let share = fits.max(0.0) / all.max(f64::MIN_POSITIVE);
            Err(too_few(&why, "", share))
        }
        _ => Ok(FittingRequests {
            specs: right,
            took,
            unasked,
        }),
    }
}

fn too_few(why: &str, at_most: &str, share: f64) -> String {
    let share = (share * 100.0).floor().abs();
    format!("{why} ({at_most}{share:.0} % of the requests get the expected answer; expected 95 %)")
}

fn why_not(
    url: &Url,
    status: u16,
    body: &[u8],
    asked: &WorkloadOptions,
    expect: &Expect,
) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let has_marker = asked
        .contains
        .as_ref()
        .is_none_or(|marker| text.contains(marker.as_str()));
    if let Some(cause) = expect.judge(status, has_marker, None) {
        let hint = match status {
            301 | 302 | 303 | 307 | 308 => {
                "; name the page it leads to, or send a session with --header"
            }
            500.. => "; mend the site first",
            _ => "; expected 200 to 299, or what --expect says",
        };
        return Some(format!("{url} answers {cause}{hint}"));
    }
    (asked.contains.is_none() && asks_for_password(&text)).then(|| {
        format!(
            "{url} looks like a login page (it asks for a password): send a session with --header \
             'Cookie: …', or say with --contains what a right page holds"
        )
    })
}

fn asks_for_password(page: &str) -> bool {
    let page = page.to_ascii_lowercase();
    ["type=\"password\"", "type='password'", "type=password"]
        .iter()
        .any(|sign| page.contains(sign))
}

fn plan(
    endpoint: Endpoint,
    specs: Vec<RequestSpec>,
    asked: &WorkloadOptions,
    expect: Expect,
) -> Result<Plan, String> {
    let headers = asked.headers.iter().map(|text| request::read_header(text));
    let headers = headers.collect::<Result<Vec<_>, _>>()?;
    let mut plan = Plan {
        endpoints: vec![endpoint],
        protocol: Protocol::Http1,
        requests: Vec::new(),
        in_order: false,
        load: Load::Closed {
            users: 1,
            think: Think::Nothing,
            ramp: 0,
            requests: None,
        },
        duration: clock::SECOND,
        warm_up: 0,
        timeout: 10 * clock::SECOND,
        late_after: 10 * clock::MILLISECOND,
        threads: 1,
        seed: 1,
        keep_alive: true,
        follow: false,
        cookies: asked.cookies,
        expect,
    };
    for mut spec in specs {
        spec.headers.extend(headers.iter().cloned());
        let encoded = render(&plan, &spec, None, None)?;
        plan.requests.push(Request {
            spec,
            endpoint: 0,
            encoded,
        });
    }
    Ok(plan)
}

#[cfg(test)]
mod tests;
