//! maitred's own settings.

use super::{
    Recommendation, Server, SettingInputs, limits, line, max_requests, rate_of, resources, workers,
};

pub(super) fn lines(inputs: &SettingInputs) -> Vec<Recommendation> {
    let server = Server::Maitred;
    vec![
        line(server, "pm", "auto", &["R51", "R52", "R140"])
            .measured(
                "what a fixed number would do",
                "as many workers as are worth having at the moment",
            )
            .guide(
                "static",
                "the number that is right now is wrong after the next release",
            ),
        workers(server, "max_children", inputs),
        line(
            server,
            "request_queue_timeout",
            format!("{:.0}ms", inputs.limit * 1e3),
            &["R80", "R82"],
        )
        .measured(
            rate_of(inputs),
            "the goal's limit: a later answer is of no use",
        )
        .guide(
            "a backlog of 8192",
            "a queue is to be bounded by time, not by length",
        ),
        line(
            server,
            "request_queue_length",
            format!("{:.0}", inputs.queue()),
            &["R80", "R82", "R84"],
        )
        .measured(
            rate_of(inputs),
            "rate x limit: who waits behind more is refused before long anyway",
        )
        .guide(
            "4096 to 8192",
            "it bounds memory; how long somebody waits is bounded by request_queue_timeout",
        ),
        limits::wall(server, "request_terminate_timeout", inputs),
        limits::processor(server, "php_value.max_execution_time", inputs),
        max_requests(server, "max_requests", inputs),
        limits::memory(server, "php_value.memory_limit", inputs),
        resources::most_private(server, inputs),
        resources::memory_max(server, inputs),
        resources::spawn_rate(server, inputs),
        resources::open_files(server, "rlimit_files", inputs),
        resources::opcache(
            server,
            "php_admin_value.\"opcache.memory_consumption\"",
            inputs,
        ),
        resources::strings(
            server,
            "php_admin_value.\"opcache.interned_strings_buffer\"",
            inputs,
        ),
        resources::scripts(
            server,
            "php_admin_value.\"opcache.max_accelerated_files\"",
            inputs,
        ),
        resources::page_cache(server, inputs),
    ]
}
