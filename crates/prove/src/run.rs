//! A whole comparison: requests the addresses of each site from both servers, at a limited rate.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use maitred_import::report::ImportReport;
use maitred_import::rule_examples::examples;
use maitred_import::served::{ServedRule, ServedSite};
use maitred_measure::plan::Endpoint;
use maitred_warm::sitemap::Sitemap;
use tokio::time::{Interval, MissedTickBehavior};

use crate::accepted::{RequestFacts, accepted};
use crate::causes::{DifferenceOrigin, Explanation, FoundDifference, Proof, opens, reported};
use crate::client::{self, SentRequest};
use crate::difference::{Aspect, ComparedSite, Comparison, compare};
use crate::frontier::{Frontier, Offered};
use crate::page_links::{PageAddress, links, resolve};
use crate::probe::{AddressSource, ProbeForm, Responses, ServerResponse};
use crate::secret_paths::{SECRETS, encoded};

/// Lowest rate, in requests a second.
pub const MIN_RATE: f64 = 0.1;
/// Highest rate, in requests a second.
pub const MAX_RATE: f64 = 10_000.0;

/// Addresses of one rule and one kind of response that get all forms of requests.
const FORMS_OF_KIND: usize = 2;

/// Most addresses of a site over plain HTTP whose first page is redirected to HTTPS.
const MAX_REDIRECTED: usize = 12;

/// Most sitemaps of a site.
const MAX_SITEMAPS: usize = 10;

/// Most addresses of a sitemap.
const MAX_OF_SITEMAP: usize = 500;

/// Most differing requests that are repeated.
const MAX_CONFIRMED: usize = 200;

/// Most repetitions of a request before its difference counts. A worker's process id, say, varies
/// only if another worker gets the request.
const REPETITIONS: usize = 3;

/// Requests of every site besides its pages.
const USUAL: [&str; 3] = ["/robots.txt", "/sitemap.xml", "/favicon.ico"];

/// A site at both servers.
#[derive(Debug)]
pub struct SiteTarget<'a> {
    /// The site.
    pub site: &'a ServedSite,
    /// Its address.
    pub compared: ComparedSite,
    /// The old server.
    pub old: Endpoint,
    /// The new server.
    pub new: Endpoint,
    /// Addresses from access logs and the document root.
    pub found: Vec<(String, AddressSource)>,
}

/// What to compare.
#[derive(Debug)]
pub struct ProofPlan<'a> {
    /// The sites.
    pub sites: Vec<SiteTarget<'a>>,
    /// Most requests a second, of both servers together.
    pub rate: f64,
    /// Most addresses.
    pub limit: usize,
    /// Paths and bodies of POST requests that change nothing.
    pub posts: Vec<(String, String)>,
    /// The report of the import.
    pub report: &'a ImportReport,
}

/// The rule of the new server for a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewRule {
    /// The rule, with file and line.
    pub text: String,
    /// The place that it comes from, and perhaps a reason.
    pub from: String,
    /// Whether the front controller runs.
    pub runs_front_controller: bool,
}

/// Finds the rule of the new server for a site, a request target and a method.
pub type NewRuleFinder<'a> = &'a dyn Fn(&ComparedSite, &str, &str) -> NewRule;

/// Compares all sites. It stops early once `is_stopped` is set.
///
/// # Errors
/// The kernel's, if requests cannot be sent at all.
pub fn run(
    plan: &ProofPlan<'_>,
    find: NewRuleFinder<'_>,
    is_stopped: &AtomicBool,
) -> io::Result<Proof> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interval =
            tokio::time::interval(Duration::from_secs_f64(1.0 / plan.rate.max(MIN_RATE)));
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut comparing = Comparing {
            plan,
            find,
            is_stopped,
            interval,
            proof: Proof::default(),
            kinds: BTreeMap::new(),
            confirmed: 0,
        };
        for (index, target) in plan.sites.iter().enumerate() {
            let left = plan.limit.saturating_sub(comparing.proof.addresses);
            comparing.site(target, left.div_ceil(plan.sites.len() - index)).await;
        }
        Ok(comparing.proof)
    })
}

/// A request in one form to a site.
#[derive(Clone, Copy)]
struct Probe<'r> {
    target: &'r SiteTarget<'r>,
    path: &'r str,
    form: &'r ProbeForm,
    /// The responses of the old and the new server to GET, for the forms that refer to them.
    before: Option<&'r [ServerResponse; 2]>,
}

/// Responses, and how they differ.
struct ComparedResponses<'r> {
    responses: &'r Responses,
    comparison: Comparison,
}

/// A run.
struct Comparing<'a> {
    plan: &'a ProofPlan<'a>,
    find: NewRuleFinder<'a>,
    is_stopped: &'a AtomicBool,
    interval: Interval,
    proof: Proof,
    /// How often a kind of response has got all forms of requests.
    kinds: BTreeMap<String, usize>,
    confirmed: usize,
}

impl Comparing<'_> {
    async fn site(&mut self, target: &SiteTarget<'_>, limit: usize) {
        let mut frontier = Frontier::new(limit);
        offer_all(&mut frontier, target);
        let mut sitemaps = BTreeSet::from(["/sitemap.xml".to_owned()]);
        let mut done = 0;
        let mut is_redirected = false;
        while let Some((path, source)) = frontier.take() {
            if self.is_stopped.load(Ordering::SeqCst) || is_redirected && done >= MAX_REDIRECTED {
                break;
            }
            let Some(response) = self.address(target, &path).await else { break };
            is_redirected |= source == AddressSource::Start
                && !target.compared.is_tls
                && leads_to_https(&response, &target.compared);
            done += 1;
            let page = PageAddress { authority: &target.compared.authority, target: &path };
            let listed = match path.as_str() {
                "/robots.txt" => of_robots(&response, page),
                path if sitemaps.contains(path) => of_sitemap(&response, page),
                _ => ListedAddresses::default(),
            };
            for map in listed.sitemaps {
                if sitemaps.len() < MAX_SITEMAPS && sitemaps.insert(map.clone()) {
                    frontier.offer(&map, AddressSource::Sitemap);
                }
            }
            for page in listed.pages {
                frontier.offer(&page, AddressSource::Sitemap);
            }
            if response.media_type() == "text/html" {
                for link in links(&response.body, page) {
                    frontier.offer(&link, AddressSource::Link);
                }
            }
            if let Some(next) = response.header("location").and_then(|to| resolve(to, page)) {
                frontier.offer(&next, AddressSource::Link);
            }
        }
        for (path, body) in &self.plan.posts {
            if !self.is_stopped.load(Ordering::SeqCst) {
                self.post(target, path, body).await;
            }
        }
        self.proof.left_out += frontier.left_out();
        let host = &target.compared.authority;
        self.proof.skipped.extend(frontier.skipped().map(|path| format!("{host}{path}")));
    }

    /// Compares all forms of requests for an address. The response of the old server; `None` if the
    /// old server cannot be reached.
    async fn address(&mut self, target: &SiteTarget<'_>, path: &str) -> Option<ServerResponse> {
        self.proof.addresses += 1;
        let plain = Probe { target, path, form: &ProbeForm::Get, before: None };
        let responses = self.ask(plain).await;
        let [old, _] = &responses.old;
        if old.status == 0 {
            let why = String::from_utf8_lossy(&old.body);
            let address = address_of(&target.compared, path);
            self.proof.troubles.push(format!("{address}: the old server: {why}"));
            return (self.proof.addresses > 1).then(|| old.clone());
        }
        self.judge(plain, &responses).await;
        let old = old.clone();
        if self.is_new_kind(target, path, &old) {
            for form in forms(&responses) {
                let before = [responses.old[0].clone(), responses.new.clone()];
                let probe = Probe { form: &form, before: Some(&before), ..plain };
                let more = self.ask(probe).await;
                self.judge(probe, &more).await;
            }
        }
        Some(old)
    }

    /// Asks the old server, the new one, and the old one again.
    async fn ask(&mut self, probe: Probe<'_>) -> Responses {
        let Probe { target, path, form, before } = probe;
        let authority = target.compared.authority.as_str();
        let sent = |before| SentRequest { authority, target: path, form, before };
        let (old, new) = (sent(before.map(|both| &both[0])), sent(before.map(|both| &both[1])));
        let first = self.send(&target.old, old).await;
        let response = self.send(&target.new, new).await;
        let second = self.send(&target.old, old).await;
        Responses { old: [first, second], new: response }
    }

    async fn send(&mut self, endpoint: &Endpoint, sent: SentRequest<'_>) -> ServerResponse {
        self.interval.tick().await;
        self.proof.requests += 1;
        client::exchange(endpoint, sent).await
    }

    /// A POST is sent once to each server: what varies by itself is not learnt.
    async fn post(&mut self, target: &SiteTarget<'_>, path: &str, body: &str) {
        let form = ProbeForm::Post(body.to_owned());
        let authority = target.compared.authority.as_str();
        let sent = SentRequest { authority, target: path, form: &form, before: None };
        let old = self.send(&target.old, sent).await;
        let new = self.send(&target.new, sent).await;
        let responses = Responses { old: [old.clone(), old], new };
        let comparison = compare(&responses, &form, &target.compared);
        let compared = ComparedResponses { responses: &responses, comparison };
        self.record(target, path, &form, compared);
    }

    /// Compares, and repeats the request before a difference counts.
    async fn judge(&mut self, probe: Probe<'_>, responses: &Responses) {
        let Probe { target, path, form, .. } = probe;
        let mut comparison = compare(responses, form, &target.compared);
        let facts = RequestFacts {
            target: path,
            form,
            runs_front_controller: false,
            is_for_php: false,
            is_refused: target.site.rule_of(&decoded(path)).is_some_and(ServedRule::refuses),
        };
        let is_unexplained = |comparison: &Comparison| {
            let mut differences = comparison.differences.iter();
            differences.any(|difference| accepted(difference, responses, facts).is_none())
        };
        if is_unexplained(&comparison) && self.confirmed < MAX_CONFIRMED {
            self.confirmed += 1;
            for _ in 0..REPETITIONS {
                let again = self.ask(probe).await;
                retain_repeated(&mut comparison, [responses, &again], probe);
                if !is_unexplained(&comparison) {
                    break;
                }
            }
        }
        self.record(target, path, form, ComparedResponses { responses, comparison });
    }

    fn record(
        &mut self,
        target: &SiteTarget<'_>,
        path: &str,
        form: &ProbeForm,
        compared: ComparedResponses<'_>,
    ) {
        let ComparedResponses { responses, comparison } = compared;
        self.proof.compared += 1;
        self.proof.varying += usize::from(comparison.varies);
        self.proof.same += usize::from(comparison.differences.is_empty());
        if comparison.differences.is_empty() {
            return;
        }
        let (rule, rules) =
            (target.site.rule_of(&decoded(path)), target.site.rules_of(&decoded(path)));
        let new_rule = (self.find)(&target.compared, path, form.method());
        for difference in comparison.differences {
            let facts = RequestFacts {
                target: path,
                form,
                runs_front_controller: new_rule.runs_front_controller,
                is_for_php: rules.iter().any(|rule| rule.is_for_php()),
                is_refused: rule.is_some_and(ServedRule::refuses),
            };
            let origin = DifferenceOrigin {
                rules: &rules,
                site: target.site,
                new_rule_from: &new_rule.from,
                target: path,
                new_status: responses.new.status,
                is_leak: opens(responses.old[0].status, responses.new.status)
                    && !new_rule.runs_front_controller,
            };
            let explanation = match accepted(&difference, responses, facts) {
                Some(why) => Explanation::Accepted(why),
                None => reported(&difference, self.plan.report, origin)
                    .map_or(Explanation::None, Explanation::Reported),
            };
            self.proof.add(FoundDifference {
                difference,
                address: address_of(&target.compared, path),
                form: form.label(),
                responses,
                explanation,
                old_rule: rule
                    .map_or_else(|| format!("{}: server", target.site.place), ToString::to_string),
                new_rule: new_rule.text.clone(),
            });
        }
    }

    /// Whether few addresses with this rule and such a response have got all forms of requests.
    fn is_new_kind(
        &mut self,
        target: &SiteTarget<'_>,
        path: &str,
        response: &ServerResponse,
    ) -> bool {
        let rule = target.site.rule_of(&decoded(path));
        let rule = rule.map(|rule| rule.place.to_string()).unwrap_or_default();
        let ComparedSite { authority, is_tls, .. } = &target.compared;
        let kind =
            format!("{authority} {is_tls} {rule} {} {}", response.status, response.media_type());
        let count = self.kinds.entry(kind).or_default();
        *count += 1;
        *count <= FORMS_OF_KIND
    }
}

/// Retains the differences that a repeated request has as well, whichever two responses of the old
/// server tell what varies by itself. A failure of the new server counts without a repetition.
fn retain_repeated(comparison: &mut Comparison, asked: [&Responses; 2], probe: Probe<'_>) {
    let [first, again] = asked;
    let apart = [first.old[0].clone(), again.old[0].clone()];
    let has_failed = first.new.status == 0 || first.new.status >= 500;
    for old in [again.old.clone(), apart] {
        let repeated = Responses { old, new: again.new.clone() };
        let repeated = compare(&repeated, probe.form, &probe.target.compared);
        comparison.varies |= repeated.varies;
        comparison.differences.retain(|difference| {
            let is_failure = [Aspect::Exchange, Aspect::Status].contains(&difference.aspect);
            has_failed && is_failure
                || repeated.differences.iter().any(|other| other.aspect == difference.aspect)
        });
    }
}

/// Offers all addresses that are known before the first response: each source gets its turn.
fn offer_all(frontier: &mut Frontier, target: &SiteTarget<'_>) {
    frontier.offer("/", AddressSource::Start);
    let mut add = |path: &str, source| frontier.offer(path, source) == Offered::Taken;
    for path in target.found.iter().filter(|(_, source)| *source == AddressSource::Named) {
        add(&path.0, path.1);
    }
    for path in USUAL {
        add(path, AddressSource::Sitemap);
    }
    for rule in &target.site.rules {
        let found = examples(rule);
        for path in found.matching {
            add(&encoded(&path), AddressSource::Rule);
        }
        for path in found.beside {
            add(&encoded(&path), AddressSource::BesideRule);
        }
    }
    for path in SECRETS {
        add(path, AddressSource::Secret);
    }
    for (path, source) in &target.found {
        add(path, *source);
    }
}

/// The forms of requests besides GET that a response is good for.
fn forms(responses: &Responses) -> Vec<ProbeForm> {
    let [old, _] = &responses.old;
    let mut forms = vec![ProbeForm::Head];
    if old.shows() {
        forms.push(ProbeForm::Gzip);
        let both = |name: &str| old.header(name).is_some() && responses.new.header(name).is_some();
        if both("etag") || both("last-modified") {
            forms.extend([ProbeForm::Conditional, ProbeForm::Range]);
        }
    }
    forms
}

/// Sitemaps and pages, as request targets.
#[derive(Debug, Default)]
struct ListedAddresses {
    sitemaps: Vec<String>,
    pages: Vec<String>,
}

/// The sitemaps that a robots.txt names.
fn of_robots(response: &ServerResponse, page: PageAddress<'_>) -> ListedAddresses {
    if !response.shows() {
        return ListedAddresses::default();
    }
    let text = String::from_utf8_lossy(&response.body);
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let maps = lines.filter(|(name, _)| name.trim().eq_ignore_ascii_case("sitemap"));
    let sitemaps = maps.filter_map(|(_, url)| resolve(url, page)).take(MAX_SITEMAPS).collect();
    ListedAddresses { sitemaps, pages: Vec::new() }
}

/// The addresses of a sitemap.
fn of_sitemap(response: &ServerResponse, page: PageAddress<'_>) -> ListedAddresses {
    let is_xml = response.body.trim_ascii_start().starts_with(b"<");
    let sitemap = Sitemap::read(&response.body).ok().filter(|_| response.shows() && is_xml);
    let Some(sitemap) = sitemap else { return ListedAddresses::default() };
    let targets = |urls: &[String], most: usize| {
        urls.iter().filter_map(|url| resolve(url, page)).take(most).collect()
    };
    ListedAddresses {
        sitemaps: targets(&sitemap.further, MAX_SITEMAPS),
        pages: targets(&sitemap.pages, MAX_OF_SITEMAP),
    }
}

fn leads_to_https(response: &ServerResponse, site: &ComparedSite) -> bool {
    let host = site.authority.split(':').next().unwrap_or_default();
    let to = response.header("location").unwrap_or_default();
    let to = to.strip_prefix("https://").unwrap_or_default();
    (300..400).contains(&response.status) && to.starts_with(host)
}

/// The path of a request target, decoded.
pub fn decoded(target: &str) -> String {
    let path = target.split('?').next().unwrap_or_default();
    percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned()
}

fn address_of(site: &ComparedSite, path: &str) -> String {
    let scheme = if site.is_tls { "https" } else { "http" };
    format!("{scheme}://{}{path}", site.authority)
}
