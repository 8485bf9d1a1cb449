//! What several checks need.

use std::time::Duration;

use maitred_text::humanize;

/// A time beside settings in seconds.
pub(super) fn duration(time: Duration) -> String {
    humanize::seconds(time.as_secs_f64())
}
