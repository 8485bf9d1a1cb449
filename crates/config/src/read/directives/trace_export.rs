//! Settings of traces, in `[traces]`.

use crate::model::trace_export::{CollectorUrl, Traces, parse_pairs};
use crate::read::directive::{Directive, Needs, Preset, store};

/// Most `ratio`, in thousandths.
const ALL: u32 = 1000;

/// The directives of `[traces]`.
pub const DIRECTIVES: &[Directive<Traces>] = &[
    Directive {
        name: "endpoint",
        default: Preset::Words(
            "`\"http://127.0.0.1:4318\"`, or that of `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or \
             `OTEL_EXPORTER_OTLP_ENDPOINT`",
        ),
        takes: "a URL such as \"http://127.0.0.1:4318\" or \"https://otlp.example\", or \"off\"",
        needs: Needs::Live,
        doc: "The collector that receives the spans, as OTLP in JSON over HTTP or HTTPS. A URL \
              without a path gets `/v1/traces`; without a port it means 4318, with https 443. \
              `\"off\"` exports nothing, and requests have traces all the same.",
        example: "\"http://otel-collector:4318\"",
        read: |traces, value| {
            traces.is_on = value.text()? != "off";
            if traces.is_on {
                let url = CollectorUrl::parse(value.text()?);
                traces.endpoint = url.map_err(|why| value.refused(&why))?;
            }
            Ok(())
        },
    },
    Directive {
        name: "ca_file",
        default: Preset::Words(
            "that of `OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE` or \
             `OTEL_EXPORTER_OTLP_CERTIFICATE`; else the root certificates of the system",
        ),
        takes: "the path of a PEM file",
        needs: Needs::Live,
        doc: "The root certificates that verify a collector with https. `front_user` reads the \
              file at each connection.",
        example: "\"clients.pem\"",
        read: |traces, value| store(&mut traces.ca_file, value.file().map(Some)),
    },
    Directive {
        name: "headers",
        default: Preset::Words(
            "none, or those of `OTEL_EXPORTER_OTLP_TRACES_HEADERS` or \
             `OTEL_EXPORTER_OTLP_HEADERS`",
        ),
        takes: "a text such as \"name=value,other=value\", with percent-encoded values",
        needs: Needs::Live,
        doc: "Headers of each export, such as a key for the collector. No message shows them.",
        example: "\"x-api-key=7f3b\"",
        read: |traces, value| store(&mut traces.headers, value.secret(parse_pairs)),
    },
    Directive {
        name: "service_name",
        default: Preset::Words("`\"maitred\"`, or that of `OTEL_SERVICE_NAME`"),
        takes: "a text",
        needs: Needs::Live,
        doc: "The name of this server in traces, `service.name`.",
        example: "\"shop-web\"",
        read: |traces, value| {
            let name = value.text_as(|text| (!text.is_empty()).then(|| text.to_owned()));
            store(&mut traces.service_name, name)
        },
    },
    Directive {
        name: "resource_attributes",
        default: Preset::Words("none, or those of `OTEL_RESOURCE_ATTRIBUTES`"),
        takes: "a text such as \"name=value,other=value\", with percent-encoded values",
        needs: Needs::Live,
        doc: "Further attributes of this server in traces. `service.name` among them is \
              `service_name` if that is not set.",
        example: "\"deployment.environment.name=production\"",
        read: |traces, value| store(&mut traces.resource, value.text_as(parse_pairs)),
    },
    Directive {
        name: "ratio",
        default: Preset::Words("`1`, or that of `OTEL_TRACES_SAMPLER`"),
        takes: "a number from 0 to 1, with at most three decimals",
        needs: Needs::Live,
        doc: "The part of the traces that start here whose spans are exported. Slow and failed \
              requests are exported beyond it.",
        example: "0.01",
        read: |traces, value| store(&mut traces.ratio, value.thousandths(0, ALL)),
    },
    Directive {
        name: "follow_parent",
        default: Preset::Words("`true`, unless `OTEL_TRACES_SAMPLER` has no `parentbased_`"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether the sampled flag of `traceparent` decides about a trace that the client has \
              started. Set it to false where clients are not to decide about the load of the \
              collector.",
        example: "false",
        read: |traces, value| store(&mut traces.follow_parent, value.boolean()),
    },
    Directive {
        name: "slow",
        default: Preset::Value("\"1s\""),
        takes: "a duration such as \"500ms\", or \"off\"",
        needs: Needs::Live,
        doc: "Requests that take longer are exported whatever `ratio` says. So is each response \
              with a status from 500 on.",
        example: "\"500ms\"",
        read: |traces, value| {
            traces.slow = match value.text() {
                Ok("off") => None,
                _ => Some(value.duration()?),
            };
            Ok(())
        },
    },
];
