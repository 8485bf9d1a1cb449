//! The text that Prometheus reads: its format 0.0.4, or OpenMetrics 1.0. Metrics are declared as
//! tables of [`MetricFamily`], from which their reference (`docs/reference/metrics.md`) is written,
//! too.

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
    /// The text format 0.0.4, which everything reads.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The format that a client with this `Accept` header reads.
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

/// A metric: its name, its type, what documents it, and its samples of an item (a pool, a site …).
pub struct MetricFamily<T> {
    pub name: &'static str,
    pub kind: &'static str,
    pub help: &'static str,
    /// The label that its samples have beside those of the item.
    pub label: Option<Label>,
    samples: Write<T>,
}

/// What writes the samples of an item.
type Write<T> = fn(&T, &mut Samples<'_>);

/// A label and its values; no values: they are documented elsewhere, or not known beforehand.
pub type Label = (&'static str, &'static [&'static str]);

impl<T> MetricFamily<T> {
    /// A value that goes up and down.
    pub const fn gauge(
        name: &'static str,
        help: &'static str,
        samples: Write<T>,
    ) -> MetricFamily<T> {
        MetricFamily { name, kind: "gauge", help, label: None, samples }
    }

    /// The same, with a label.
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

    /// A value that only grows.
    pub const fn counter(
        name: &'static str,
        help: &'static str,
        samples: Write<T>,
    ) -> MetricFamily<T> {
        let mut metric = MetricFamily::gauge(name, help, samples);
        metric.kind = "counter";
        metric
    }

    /// The same, with a label.
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

    /// Values in buckets.
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

/// The page.
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

    /// Writes metrics of items, each with its labels as they are written. Nothing without items.
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

    /// The samples of an item, of the metric that was declared last.
    pub fn samples<'t>(&'t mut self, name: &'t str, labels: &'t str) -> Samples<'t> {
        let text = &mut self.text;
        Samples { text, name, labels }
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
    /// The only sample.
    pub fn value(&mut self, value: impl Display) {
        self.line("", "", value);
    }

    /// The sample with this label.
    pub fn labelled(&mut self, label: &str, of: &str, value: impl Display) {
        self.line("", &format!("{label}=\"{of}\""), value);
    }

    /// The samples with the label `label`, by its values.
    pub fn all<'n>(&mut self, label: &str, values: impl IntoIterator<Item = (&'n str, u64)>) {
        for (of, value) in values {
            self.labelled(label, of, value);
        }
    }

    /// A histogram of times.
    pub fn times(&mut self, times: &Histogram) {
        self.powers(times, TIME_POWERS, 1e6);
    }

    /// A histogram of bytes, which were counted as kilobytes.
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

    /// A histogram: the bounds of buckets and how many values are below each.
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
