//! A worker's stats about its request, sent to the front in a private record ([`REPORT`]).
//!
//! Six numbers, the lengths of two texts, and the texts; all numbers are big-endian as in FastCGI.
//!
//! [`REPORT`]: crate::REPORT

use crate::response::write_report;

/// Longest text of a report, in bytes; longer ones are truncated.
pub const MAX_REPORT_TEXT_BYTES: usize = 16 * 1024;

/// Bytes before the texts.
const FIXED_BYTES: usize = 4 + 2 + 4 * 8 + 2 * 2;

/// The longest report, in bytes.
pub const MAX_REPORT_BYTES: usize = FIXED_BYTES + 2 * MAX_REPORT_TEXT_BYTES;

/// A worker's report on its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report<'a> {
    /// Its process id.
    pub pid: u32,
    /// The final status in PHP, which may differ from that of the response.
    pub status: u16,
    /// Run time of the script, in microseconds.
    pub took_micros: u64,
    /// User time, in microseconds.
    pub user_micros: u64,
    /// System time, in microseconds.
    pub system_micros: u64,
    /// Peak memory of the script, in bytes.
    pub peak_memory: u64,
    /// The path of the request in PHP.
    pub uri: &'a [u8],
    /// The script's file; empty: there is none.
    pub script: &'a [u8],
}

impl<'a> Report<'a> {
    /// Appends the report as a record.
    pub fn write(&self, out: &mut Vec<u8>) {
        let cut = |text: &'a [u8]| &text[..text.len().min(MAX_REPORT_TEXT_BYTES)];
        let (uri, script) = (cut(self.uri), cut(self.script));
        let mut report = Vec::with_capacity(FIXED_BYTES + uri.len() + script.len());
        report.extend_from_slice(&self.pid.to_be_bytes());
        report.extend_from_slice(&self.status.to_be_bytes());
        let numbers = [self.took_micros, self.user_micros, self.system_micros, self.peak_memory];
        for number in numbers {
            report.extend_from_slice(&number.to_be_bytes());
        }
        for text in [uri, script] {
            report.extend_from_slice(&(text.len() as u16).to_be_bytes());
        }
        report.extend_from_slice(uri);
        report.extend_from_slice(script);
        write_report(out, &report);
    }

    /// Parses the content of such a record, if it is valid.
    pub fn read(content: &'a [u8]) -> Option<Report<'a>> {
        let mut rest = content;
        let pid = u32::from_be_bytes(take(&mut rest)?);
        let status = u16::from_be_bytes(take(&mut rest)?);
        let mut number = || Some(u64::from_be_bytes(take(&mut rest)?));
        let (took_micros, user_micros) = (number()?, number()?);
        let (system_micros, peak_memory) = (number()?, number()?);
        let mut length = || Some(usize::from(u16::from_be_bytes(take(&mut rest)?)));
        let (uri, script) = (length()?, length()?);
        let (uri, rest) = rest.split_at_checked(uri)?;
        let script = rest.get(..script).filter(|text| text.len() == rest.len())?;
        Some(Report {
            pid,
            status,
            took_micros,
            user_micros,
            system_micros,
            peak_memory,
            uri,
            script,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProtocolStatus, ResponseEvent, ResponseReader, write_end};

    const REPORT: Report<'static> = Report {
        pid: 4711,
        status: 404,
        took_micros: u64::MAX,
        user_micros: 1,
        system_micros: 2,
        peak_memory: 2 << 20,
        uri: b"/index.php",
        script: b"/srv/index.php",
    };

    fn content(report: &Report<'_>) -> Vec<u8> {
        let mut record = Vec::new();
        report.write(&mut record);
        record.split_off(crate::HEADER_LEN)
    }

    #[test]
    fn a_report_arrives_as_it_was_sent_before_the_end() {
        let mut bytes = Vec::new();
        REPORT.write(&mut bytes);
        write_end(&mut bytes, 1, 0, ProtocolStatus::RequestComplete);
        let mut reader = ResponseReader::new(1);
        let mut input = &bytes[..];
        match reader.next(&mut input) {
            Ok(Some(ResponseEvent::Report(report))) => {
                assert_eq!(Report::read(report), Some(REPORT))
            }
            other => panic!("expected a report, got {other:?}"),
        }
        assert!(matches!(reader.next(&mut input), Ok(Some(ResponseEvent::End { .. }))));
    }

    #[test]
    fn texts_that_are_too_long_are_cut() {
        let long = vec![b'x'; MAX_REPORT_TEXT_BYTES + 1];
        let report = Report { uri: &long, script: &long, ..REPORT };
        let content = content(&report);
        assert_eq!(content.len(), MAX_REPORT_BYTES);
        let read = Report::read(&content).expect("a report");
        assert_eq!(read.script.len(), MAX_REPORT_TEXT_BYTES);
    }

    #[test]
    fn what_is_too_short_or_too_long_is_no_report() {
        let mut content = content(&REPORT);
        for length in 0..content.len() {
            assert_eq!(Report::read(&content[..length]), None);
        }
        content.push(0);
        assert_eq!(Report::read(&content), None);
    }
}
