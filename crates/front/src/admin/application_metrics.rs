//! What applications count themselves (`maitred_metric_add` and others), as metrics. Names have the
//! prefix `app_`: none can be taken for one of the server's, nor for one of another exporter.
//!
//! Pools belong to different people: where their metrics have one name but different types, none is
//! left out, but both lose their type.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use maitred_scoreboard::{
    APPLICATION_BOUNDS, APPLICATION_REFUSALS, ApplicationReading, ApplicationSeries,
    ApplicationValue,
};

use crate::admin::exposition::{Format, MetricFamily, Text};

/// Before the name of each metric.
const PREFIX: &str = "app_";

/// What the names of counters end with.
const TOTAL: &str = "_total";

/// Most bytes of the lines of one pool.
const MAX_POOL_BYTES: usize = 1 << 20;

/// Most bytes of the lines of all pools; each has its share.
const MAX_BYTES: usize = 32 << 20;

/// The bytes of a line beside its name and labels, at most.
const VALUE_BYTES: usize = 48;

/// What a pool's application counts.
#[derive(Debug, Clone, Default)]
pub struct ApplicationFigures {
    pub series: u64,
    pub refused: [u64; APPLICATION_REFUSALS.len()],
    pub left_out: u64,
}

/// Metrics of the counting itself.
pub const APPLICATION: &[MetricFamily<ApplicationFigures>] = &[
    MetricFamily::gauge(
        "maitred_pool_application_series",
        "Series that the application counts itself.",
        |pool, out| out.value(pool.series),
    ),
    MetricFamily::gauge(
        "maitred_pool_application_series_left_out",
        "Series that are left out here, since the page would be too long.",
        |pool, out| out.value(pool.left_out),
    ),
    MetricFamily::counter_by(
        "maitred_pool_application_refused_total",
        "Calls of maitred_metric_add() and others that were not counted, by reason.",
        ("reason", &APPLICATION_REFUSALS),
        |pool, out| out.all("reason", APPLICATION_REFUSALS.into_iter().zip(pool.refused)),
    ),
];

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn of(value: &ApplicationValue) -> Kind {
        match value {
            ApplicationValue::Counter(_) => Kind::Counter,
            ApplicationValue::Gauge(_) => Kind::Gauge,
            ApplicationValue::Histogram { .. } => Kind::Histogram,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }

    /// All names that a metric takes for itself.
    fn names(self, name: &str) -> Vec<String> {
        let with = |suffix: &str| format!("{name}{suffix}");
        match self {
            // OpenMetrics declares it without the suffix.
            Kind::Counter => vec![with(""), name.strip_suffix(TOTAL).unwrap_or(name).to_owned()],
            Kind::Gauge => vec![with("")],
            Kind::Histogram => ["", "_bucket", "_sum", "_count"].map(with).into(),
        }
    }
}

/// The series of a metric, by their labels.
type Series = BTreeMap<String, ApplicationValue>;

/// Writes the metrics of these pools, and returns what each has. Of each pool no more than its
/// share stays in memory: the next one is read when the last one has been collected.
pub fn write<'p>(
    out: &mut Text,
    pools: impl ExactSizeIterator<Item = (&'p str, ApplicationReading)>,
) -> Vec<ApplicationFigures> {
    let share = (MAX_BYTES / pools.len().max(1)).min(MAX_POOL_BYTES);
    let mut metrics: BTreeMap<(String, Kind), Series> = BTreeMap::new();
    let figures = pools.map(|(pool, reading)| collect(&mut metrics, pool, reading, share));
    let figures = figures.collect();
    let mut taken: HashMap<String, u32> = HashMap::new();
    for name in metrics.keys().flat_map(|(name, kind)| kind.names(name)) {
        *taken.entry(name).or_default() += 1;
    }
    let mut untyped: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for ((name, kind), series) in &metrics {
        let lines = series.iter().flat_map(|(labels, value)| lines(name, labels, value));
        if kind.names(name).iter().all(|name| taken.get(name) == Some(&1)) {
            declare(out, name, kind.word());
            lines.for_each(|line| out.line(&line.text()));
        } else {
            let names = lines.map(|line| (line.name.clone(), line.text()));
            names.for_each(|(name, line)| {
                untyped.entry(name).or_default().insert(line);
            });
        }
    }
    for (name, lines) in &untyped {
        let word = match out.format() {
            Format::Prometheus => "untyped",
            Format::OpenMetrics => "unknown",
        };
        declare(out, name, word);
        lines.iter().for_each(|line| out.line(line));
    }
    figures
}

fn declare(out: &mut Text, name: &str, kind: &str) {
    let is_counter = kind == Kind::Counter.word() && out.format() == Format::OpenMetrics;
    let name = name.strip_suffix(TOTAL).filter(|_| is_counter).unwrap_or(name);
    out.line(&format!("# HELP {name} Counted by the application."));
    out.line(&format!("# TYPE {name} {kind}"));
}

/// Adds the series of a pool, as far as its share goes.
fn collect(
    metrics: &mut BTreeMap<(String, Kind), Series>,
    pool: &str,
    reading: ApplicationReading,
    share: usize,
) -> ApplicationFigures {
    let (mut bytes, mut left_out) = (0usize, 0);
    let count = u64::try_from(reading.series.len()).unwrap_or(u64::MAX);
    for series in reading.series {
        let kind = Kind::of(&series.value);
        let name = exposed_name(&series.name, kind);
        let labels = labels(pool, &series);
        let lines = if kind == Kind::Histogram { APPLICATION_BOUNDS.len() + 3 } else { 1 };
        bytes = bytes.saturating_add(lines * (name.len() + labels.len() + VALUE_BYTES));
        if bytes > share {
            left_out += 1;
            continue;
        }
        let all = metrics.entry((name, kind)).or_default();
        // The same twice: two processes have named it at once, and one was killed.
        let value = match all.remove(&labels) {
            Some(other) => sum(&series.value, &other),
            None => series.value,
        };
        all.insert(labels, value);
    }
    ApplicationFigures { series: count, refused: reading.refused, left_out }
}

fn exposed_name(name: &str, kind: Kind) -> String {
    let suffix = if kind == Kind::Counter && !name.ends_with(TOTAL) { TOTAL } else { "" };
    format!("{PREFIX}{name}{suffix}")
}

fn labels(pool: &str, series: &ApplicationSeries) -> String {
    let mut text = format!("pool=\"{pool}\"");
    for (name, value) in &series.labels {
        let _ = write!(text, ",{name}=\"");
        for char in value.chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                char => text.push(char),
            }
        }
        text.push('"');
    }
    text
}

fn sum(one: &ApplicationValue, other: &ApplicationValue) -> ApplicationValue {
    use ApplicationValue::{Counter, Histogram};
    match (one, other) {
        (Counter(one), Counter(other)) => Counter(one + other),
        (Histogram { buckets, sum }, Histogram { buckets: more, sum: other }) => {
            let buckets = std::array::from_fn(|at| buckets[at].saturating_add(more[at]));
            Histogram { buckets, sum: sum + other }
        }
        (one, _) => one.clone(),
    }
}

struct SampleLine {
    name: String,
    labels: String,
    value: String,
}

impl SampleLine {
    fn text(&self) -> String {
        format!("{}{{{}}} {}", self.name, self.labels, self.value)
    }
}

fn lines(name: &str, labels: &str, value: &ApplicationValue) -> Vec<SampleLine> {
    let line = |suffix: &str, labels: String, value: String| SampleLine {
        name: format!("{name}{suffix}"),
        labels,
        value,
    };
    match value {
        ApplicationValue::Counter(value) | ApplicationValue::Gauge(value) => {
            vec![line("", labels.to_owned(), number(*value))]
        }
        ApplicationValue::Histogram { buckets, sum } => {
            let mut below = 0u64;
            let bounds = APPLICATION_BOUNDS.iter().map(ToString::to_string);
            let bounds = bounds.chain(["+Inf".to_owned()]);
            let mut all: Vec<SampleLine> = bounds
                .zip(buckets)
                .map(|(bound, count)| {
                    below = below.saturating_add(*count);
                    let labels = format!("{labels},le=\"{bound}\"");
                    line("_bucket", labels, below.to_string())
                })
                .collect();
            all.push(line("_sum", labels.to_owned(), number(*sum)));
            all.push(line("_count", labels.to_owned(), below.to_string()));
            all
        }
    }
}

/// A number as Go's `ParseFloat` takes it, without hundreds of zeros.
fn number(value: f64) -> String {
    const LONG: std::ops::Range<f64> = 1e-6..1e15;
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value if value == 0.0 || LONG.contains(&value.abs()) => value.to_string(),
        value => format!("{value:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, labels: &[(&str, &str)], value: ApplicationValue) -> ApplicationSeries {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ApplicationSeries { name: name.to_owned(), labels: labels.collect(), value }
    }

    fn reading(series: Vec<ApplicationSeries>) -> ApplicationReading {
        ApplicationReading { series, refused: [1, 2, 3] }
    }

    fn page(format: Format, pools: &[(&str, ApplicationReading)]) -> String {
        let mut out = Text::new(format);
        write(&mut out, pools.iter().cloned());
        out.finish()
    }

    #[test]
    fn counters_gauges_and_histograms_are_written_with_escaped_labels() {
        use ApplicationValue::{Counter, Gauge, Histogram};
        let mut buckets = [0; 17];
        (buckets[6], buckets[16]) = (2, 1);
        let all = reading(vec![
            series("orders", &[("kind", "a\"b\\c\nd")], Counter(5.5)),
            series("orders_total", &[("kind", "b2b")], Counter(1e20)),
            series("left", &[], Gauge(f64::NEG_INFINITY)),
            series("seconds", &[], Histogram { buckets, sum: 150.25 }),
        ]);
        let text = page(Format::Prometheus, &[("a", all.clone())]);
        let expected = "# HELP app_left Counted by the application.\n\
                        # TYPE app_left gauge\n\
                        app_left{pool=\"a\"} -Inf\n\
                        # HELP app_orders_total Counted by the application.\n\
                        # TYPE app_orders_total counter\n\
                        app_orders_total{pool=\"a\",kind=\"a\\\"b\\\\c\\nd\"} 5.5\n\
                        app_orders_total{pool=\"a\",kind=\"b2b\"} 1e20\n\
                        # HELP app_seconds Counted by the application.\n\
                        # TYPE app_seconds histogram\n";
        assert!(text.starts_with(expected), "{text}");
        for line in [
            "app_seconds_bucket{pool=\"a\",le=\"0.05\"} 0\n",
            "app_seconds_bucket{pool=\"a\",le=\"0.1\"} 2\n",
            "app_seconds_bucket{pool=\"a\",le=\"100\"} 2\n",
            "app_seconds_bucket{pool=\"a\",le=\"+Inf\"} 3\n",
            "app_seconds_sum{pool=\"a\"} 150.25\n",
            "app_seconds_count{pool=\"a\"} 3\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        let text = page(Format::OpenMetrics, &[("a", all)]);
        assert!(text.contains("# TYPE app_orders counter\napp_orders_total{"), "{text}");
    }

    #[test]
    fn pools_that_disagree_about_a_type_lose_it_and_nothing_else() {
        use ApplicationValue::{Counter, Gauge};
        let pools = [
            ("a", reading(vec![series("jobs", &[], Counter(1.0))])),
            ("b", reading(vec![series("jobs_total", &[], Gauge(2.0))])),
            ("c", reading(vec![series("jobs", &[], Gauge(3.0))])),
        ];
        let text = page(Format::Prometheus, &pools);
        let expected = "# TYPE app_jobs untyped\napp_jobs{pool=\"c\"} 3\n";
        assert!(text.contains(expected), "{text}");
        let expected = "# TYPE app_jobs_total untyped\napp_jobs_total{pool=\"a\"} 1\n\
                        app_jobs_total{pool=\"b\"} 2\n";
        assert!(text.contains(expected), "{text}");
        let declared = text.lines().filter(|line| line.starts_with("# TYPE")).count();
        assert_eq!(declared, 2, "{text}");
        assert!(page(Format::OpenMetrics, &pools).contains("# TYPE app_jobs_total unknown\n"));
    }

    #[test]
    fn a_pool_has_no_more_text_than_its_share() {
        let long = "x".repeat(120);
        let all = (0..1000).map(|number| {
            let (a, b) = (format!("{number}"), long.as_str());
            let value = ApplicationValue::Histogram { buckets: [u64::MAX; 17], sum: 1e300 };
            series("name", &[("a", &a), ("b", b)], value)
        });
        let pools = [("a", reading(all.collect())), ("b", reading(Vec::new()))];
        let mut out = Text::new(Format::Prometheus);
        let figures = write(&mut out, pools.into_iter());
        let text = out.finish();
        assert!(text.len() <= MAX_POOL_BYTES, "{}", text.len());
        assert!((1..1000).contains(&figures[0].left_out), "{figures:?}");
        assert_eq!((figures[0].series, figures[1].left_out), (1000, 0));
    }
}
