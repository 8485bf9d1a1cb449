//! OpenTelemetry's own variables as settings of `[traces]`
//! (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>). They fill
//! in what a section `[traces]` leaves out, and turn nothing on: in a container they are there for
//! the application.

/// A setting of `[traces]` that a variable has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OtelSetting {
    /// The name of the variable.
    pub variable: &'static str,
    /// The name of the setting.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// Whether the value is text in any case.
    pub is_text: bool,
}

/// The settings in variables, which `get` looks up. An empty variable is none.
pub(crate) fn otel_settings(get: impl Fn(&str) -> Option<String>) -> Vec<OtelSetting> {
    let get = |name: &str| get(name).filter(|value| !value.trim().is_empty());
    let mut found = Vec::new();
    let mut add = |variable, setting, value: String, is_text| {
        found.push(OtelSetting { variable, setting, value, is_text });
    };
    let is_off = get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let exporter = get("OTEL_TRACES_EXPORTER");
    if is_off || exporter.is_some_and(|exporter| exporter == "none") {
        add("OTEL_TRACES_EXPORTER", "endpoint", "off".to_owned(), true);
    } else if let Some(url) = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
        add("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "endpoint", url, true);
    } else if let Some(url) = get("OTEL_EXPORTER_OTLP_ENDPOINT") {
        let url = format!("{}/v1/traces", url.trim_end_matches('/'));
        add("OTEL_EXPORTER_OTLP_ENDPOINT", "endpoint", url, true);
    }
    for name in ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"] {
        if let Some(headers) = get(name) {
            add(name, "headers", headers, true);
            break;
        }
    }
    for name in ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"] {
        if let Some(file) = get(name) {
            add(name, "ca_file", file, true);
            break;
        }
    }
    if let Some(name) = get("OTEL_SERVICE_NAME") {
        add("OTEL_SERVICE_NAME", "service_name", name, true);
    }
    if let Some(attributes) = get("OTEL_RESOURCE_ATTRIBUTES") {
        add("OTEL_RESOURCE_ATTRIBUTES", "resource_attributes", attributes, true);
    }
    if let Some(sampler) = get("OTEL_TRACES_SAMPLER") {
        let (parent, base) = match sampler.strip_prefix("parentbased_") {
            Some(base) => ("true", base),
            None => ("false", sampler.as_str()),
        };
        let ratio = match base {
            "always_off" => "0".to_owned(),
            "traceidratio" => get("OTEL_TRACES_SAMPLER_ARG").unwrap_or_else(|| "1".to_owned()),
            "always_on" => "1".to_owned(),
            // Its setting says what is expected.
            other => other.to_owned(),
        };
        add("OTEL_TRACES_SAMPLER", "ratio", ratio, false);
        add("OTEL_TRACES_SAMPLER", "follow_parent", parent.to_owned(), false);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        otel_settings(get).into_iter().map(|one| (one.setting, one.value)).collect()
    }

    #[test]
    fn the_variables_of_opentelemetry_are_settings() {
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:4318/");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://otel:1/x");
        let is = |found: Vec<(&str, String)>, expected: &[(&str, &str)]| {
            let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (*a, b.as_str())).collect();
            assert_eq!(found, expected);
        };
        is(of(&[base]), &[("endpoint", "http://otel:4318/v1/traces")]);
        is(of(&[base, own]), &[("endpoint", "http://otel:1/x")]);
        is(of(&[base, ("OTEL_SDK_DISABLED", "True")]), &[("endpoint", "off")]);
        is(of(&[base, ("OTEL_TRACES_EXPORTER", "none")]), &[("endpoint", "off")]);
        is(of(&[("OTEL_SERVICE_NAME", "")]), &[]);
        let certificate = ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/etc/ssl/ca.pem");
        is(of(&[certificate]), &[("ca_file", "/etc/ssl/ca.pem")]);
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/etc/ssl/traces.pem");
        is(of(&[certificate, traces]), &[("ca_file", "/etc/ssl/traces.pem")]);
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "a=b");
        let of_traces = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "c=d");
        is(of(&[headers]), &[("headers", "a=b")]);
        is(of(&[headers, of_traces]), &[("headers", "c=d")]);
        let (name, attributes) = (("OTEL_SERVICE_NAME", "1"), ("OTEL_RESOURCE_ATTRIBUTES", "e=f"));
        let expected = [("service_name", "1"), ("resource_attributes", "e=f")];
        is(of(&[name, attributes]), &expected);
        let sampler = |name| ("OTEL_TRACES_SAMPLER", name);
        is(of(&[sampler("always_on")]), &[("ratio", "1"), ("follow_parent", "false")]);
        is(of(&[sampler("jaeger")]), &[("ratio", "jaeger"), ("follow_parent", "false")]);
        is(of(&[sampler("always_off")]), &[("ratio", "0"), ("follow_parent", "false")]);
        is(
            of(&[sampler("parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.25")]),
            &[("ratio", "0.25"), ("follow_parent", "true")],
        );
        is(of(&[sampler("traceidratio")]), &[("ratio", "1"), ("follow_parent", "false")]);
    }
}
