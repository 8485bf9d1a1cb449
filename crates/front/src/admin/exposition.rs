//! Prometheus' exposition formats: the text format 0.0.4, and OpenMetrics 1.0. Metrics are declared
//! as tables of [`MetricFamily`], which are also the source of their reference
//! (`docs/reference/metrics.md`).

use std::borrow::Borrow;
use std::fmt::{Display, Write as _};

use maitred_scoreboard::Histogram;

/// The bounds of the buckets of times, as powers of two in microseconds: 128 µs to 67 s. They are
/// exact, since they are bounds of the scoreboard's own buckets.
const TIME_POWERS: std::ops::RangeInclusive<u32> = 7..=26;

/// The same of memory, in kilobytes: 1 MB to 1 GB.
const MEMORY_POWERS: std::ops::RangeInclusive<u32> = 10..=20;

/// The two formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The text format 0.0.4, supported by all scrapers.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The format to send, by the client's `Accept` header.
    pub fn accepted(accept: &[u8]) -> Format {
        let accept = String::from_utf8_lossy(accept);
        if accept.contains("application/openmetrics-text") {
            Format::OpenMetrics
        } else {
            Format::Prometheus
        }
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A metric: its name, type, documentation, and its samples for an item (a pool, a site …).
pub struct MetricFamily<T> {
    pub name: &'static str,
    pub kind: &'static str,
    pub help: &'static str,
    /// A label of the samples, in addition to the labels of the item.
    pub label: Option<Label>,
    samples: Write<T>,
}

/// What writes the samples of an item.
type Write<T> = fn(&T, &mut Samples<'_>);

/// A label and its values; empty if they are documented elsewhere or unknown in advance.
pub type Label = (&'static str, &'static [&'static str]);

impl<T> MetricFamily<T> {
    /// A gauge: a value that goes up and down.
    pub const fn gauge(
        name: &'static str,
        help: &'static str,
        samples: Write<T>,
    ) -> MetricFamily<T> {
        MetricFamily { name, kind: "gauge", help, label: None, samples }
    }

    /// A gauge with a label.
    pub const fn gauge_by(
        name: &'static str,
        help: &'static str,
        label: Label,
        samples: Write<T>,
    ) -> MetricFamily<T> {
        let mut metric = MetricFamily::gauge(name, help, samples);
        metric.label = Some(label);
        metric
    }

    /// A counter: a value that only grows.
    pub const fn counter(
        name: &'static str,
        help: &'static str,
        samples: Write<T>,
    ) -> MetricFamily<T> {
        let mut metric = MetricFamily::gauge(name, help, samples);
        metric.kind = "counter";
        metric
    }

    /// A counter with a label.
    pub const fn counter_by(
        name: &'static str,
        help: &'static str,
        label: Label,
        samples: Write<T>,
    ) -> MetricFamily<T> {
        let mut metric = MetricFamily::counter(name, help, samples);
        metric.label = Some(label);
        metric
    }

    /// A histogram: counts of values in buckets.
    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        samples: Write<T>,
    ) -> MetricFamily<T> {
        let mut metric = MetricFamily::gauge(name, help, samples);
        metric.kind = "histogram";
        metric
    }
}

/// The text of the page.
pub struct Text {
    format: Format,
    text: String,
}

impl Text {
    /// An empty page.
    pub fn new(format: Format) -> Text {
        let text = String::new();
        Text { format, text }
    }

    /// Writes metrics of items, each item with its labels in the syntax of the format. Writes
    /// nothing without items.
    pub fn write<T>(&mut self, metrics: &[MetricFamily<T>], items: &[(String, impl Borrow<T>)]) {
        if items.is_empty() {
            return;
        }
        for metric in metrics {
            self.declare(metric.name, metric.kind, metric.help);
            for (labels, item) in items {
                (metric.samples)(item.borrow(), &mut self.samples(metric.name, labels));
            }
        }
    }

    /// Declares a metric.
    pub fn declare(&mut self, name: &str, kind: &str, help: &str) {
        let name = match self.format {
            Format::Prometheus => name,
            Format::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes the samples of an item for the metric that was declared last.
    pub fn samples<'t>(&'t mut self, name: &'t str, labels: &'t str) -> Samples<'t> {
        let text = &mut self.text;
        Samples { text, name, labels }
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Writes a line that is complete.
    pub fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// The text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// Writes the samples of an item.
pub struct Samples<'t> {
    text: &'t mut String,
    name: &'t str,
    labels: &'t str,
}

impl Samples<'_> {
    /// Writes a sample without a label.
    pub fn value(&mut self, value: impl Display) {
        self.line("", "", value);
    }

    /// Writes the sample with this label.
    pub fn labelled(&mut self, label: &str, of: &str, value: impl Display) {
        self.line("", &format!("{label}=\"{of}\""), value);
    }

    /// Writes one sample for each value of `label`.
    pub fn all<'n>(&mut self, label: &str, values: impl IntoIterator<Item = (&'n str, u64)>) {
        for (of, value) in values {
            self.labelled(label, of, value);
        }
    }

    /// Writes a histogram of durations.
    pub fn times(&mut self, times: &Histogram) {
        self.powers(times, TIME_POWERS, 1e6);
    }

    /// Writes a histogram of bytes that was counted in kilobytes.
    pub fn kilobytes(&mut self, kilobytes: &Histogram) {
        self.powers(kilobytes, MEMORY_POWERS, 1.0 / 1024.0);
    }

    /// A histogram whose buckets end at these powers of two, divided by `divisor`.
    fn powers(&mut self, of: &Histogram, powers: std::ops::RangeInclusive<u32>, divisor: f64) {
        let bound = |power: u32| (1u64 << power) as f64 / divisor;
        let buckets = powers.map(|power| (bound(power), of.below_power(power)));
        let sum = of.sum().as_micros() as f64 / divisor;
        self.buckets(buckets, of.count(), sum);
    }

    /// Writes a histogram from the upper bounds of its buckets and their cumulative counts.
    pub fn buckets(&mut self, below: impl Iterator<Item = (f64, u64)>, count: u64, sum: f64) {
        for (bound, below) in below {
            self.line("_bucket", &format!("le=\"{bound}\""), below);
        }
        self.line("_bucket", "le=\"+Inf\"", count);
        self.line("_sum", "", sum);
        self.line("_count", "", count);
    }

    fn line(&mut self, suffix: &str, label: &str, value: impl Display) {
        let Samples { text, name, labels } = self;
        let _ = match (labels.is_empty(), label.is_empty()) {
            (true, true) => writeln!(text, "{name}{suffix} {value}"),
            (false, false) => writeln!(text, "{name}{suffix}{{{labels},{label}}} {value}"),
            _ => writeln!(text, "{name}{suffix}{{{labels}{label}}} {value}"),
        };
    }
}
