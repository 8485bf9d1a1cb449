//! Carrying out the requests of commands on the admin socket.

use std::time::Duration;

use maitred_config::{Collector, LogTarget};
use maitred_control::admin::{Reply, Request, ServerStatus};
use maitred_control::log_place::{FoundLog, LogPlace};
use maitred_os::clock::since_boot_millis;
use tracing::info;

use super::Supervisor;
use super::phase::ServerEvent;
use crate::admin::AdminConnection;
use crate::admin::status::StatusSource;
use crate::admin::status_draft::StatusDraft;
use crate::limits::Moment;
use crate::peer::Peer;
use crate::processes::profiles::ProfileRequest;
use crate::reload::ReloadScope;

/// Most requests of one command that are served before the others have their turn.
const REQUESTS_PER_TURN: usize = 4;

impl Supervisor {
    /// Accepts commands, replies to them, and closes connections that time out.
    pub(super) fn serve_admin(&mut self, is_ready: bool) {
        let now = self.now();
        if !self.admin.is_due(is_ready, now) {
            return;
        }
        let mut connections = self.admin.take_connections(now);
        for connection in &mut connections {
            connection.read(now);
            self.reply_later(connection, now);
            for _ in 0..REQUESTS_PER_TURN {
                let Some(line) = connection.next_line() else {
                    break;
                };
                self.serve_command(connection, &line);
            }
        }
        self.admin.put_back(connections, now);
        let admin = &self.admin;
        self.profiles.keep(|profile| admin.awaits_profile(profile), &mut self.pools);
    }

    fn serve_command(&mut self, connection: &mut AdminConnection, line: &[u8]) {
        let now = self.now();
        let reply = match serde_json::from_slice(line) {
            Ok(Request::Status { pool }) => match self.draft_status(pool.as_deref()) {
                Ok(draft) => {
                    connection.wait_for(draft);
                    return self.reply_later(connection, now);
                }
                Err(why) => Reply::Refused { why },
            },
            Ok(Request::Reload { pools }) => match self.reload(ReloadScope::Named(pools)) {
                Ok(ticket) => {
                    info!("reload, asked for by process {}", connection.pid());
                    self.systemd.reloads(now);
                    return connection.wait_for_reload(ticket);
                }
                Err(why) => Reply::Refused { why },
            },
            Ok(request @ (Request::Stop | Request::Drain)) => {
                let is_drain = request == Request::Drain;
                connection.wait_for_the_end();
                let running = self.scoreboards.pages().map(|page| page.read().busy).sum();
                if !is_drain || !self.phase.is_ending() {
                    let name = if is_drain { "drain" } else { "stop" };
                    info!("{name}, asked for by process {}", connection.pid());
                    self.server_event(ServerEvent::StopAsked);
                }
                Reply::Ending { running }
            }
            Ok(Request::Launch { pool, name }) => self.launch_of(&pool, &name),
            Ok(Request::FindLog) => Reply::Log(FoundLog {
                place: log_place(&self.plan.config.error_log),
                supervisor: i32::try_from(std::process::id()).unwrap_or(0),
            }),
            Ok(Request::Purge(request)) => {
                match self.purges.purge(request, &mut self.fronts, now) {
                    Ok(mark) => return connection.wait_for_purge(mark),
                    Err(why) => Reply::Refused { why },
                }
            }
            Ok(Request::Profile { pool, rate, seconds }) => {
                let duration = Duration::from_secs(seconds.into());
                let request = ProfileRequest { pool, rate, duration };
                match self.profiles.begin(&request, &mut self.pools, now) {
                    Ok(profile) => return connection.wait_for_profile(profile),
                    Err(why) => Reply::Refused { why },
                }
            }
            Err(why) => Reply::Refused { why: format!("this is no request: {why}") },
        };
        connection.reply(&reply, now);
    }

    /// Replies to a command that waits for the end of a reload or a purge, or for a complete
    /// status.
    fn reply_later(&mut self, connection: &mut AdminConnection, now: Moment) {
        let ticket = connection.awaited_reload();
        let outcome = ticket.and_then(|ticket| self.reloader.outcome(ticket));
        match outcome.cloned() {
            Some(Ok(what)) => connection.reply(&Reply::Reloaded { what }, now),
            Some(Err(why)) => connection.reply(&Reply::Refused { why }, now),
            None => {}
        }
        let purge = connection.awaited_purge();
        if let Some(reply) = purge.and_then(|mark| self.purges.outcome(mark)) {
            connection.reply(&reply, now);
        }
        let profile = connection.awaited_profile();
        if let Some(reply) =
            profile.and_then(|profile| self.profiles.outcome(profile, &self.pools, now))
        {
            connection.reply(&reply, now);
        }
        let is_awaited = |pool: Option<&str>| match pool {
            Some(pool) => self.pools.awaits_opcache(pool),
            None => {
                self.front_stats.is_awaited(&self.fronts) || self.admin.measures().are_awaited()
            }
        };
        let is_due = |draft: &mut StatusDraft| draft.is_due(now, is_awaited);
        if let Some(draft) = connection.draft().take_if(is_due) {
            let reply = draft.finish(&self.status_source(), self.front_stats.reported(), now);
            connection.reply(&reply, now);
        }
    }

    /// The status of the server, of all its pools or only of `pool`. Stacks of scripts, and the
    /// state of OPcaches and of the page cache, may still arrive.
    fn draft_status(&mut self, pool: Option<&str>) -> Result<StatusDraft, String> {
        let now = self.now();
        self.pools.query_opcaches(&self.scoreboards, now);
        self.front_stats.query(&mut self.fronts);
        self.measure_memory();
        self.script_waits.watch(now);
        let listeners = self.plan.listeners.iter();
        let front = self.fronts.current();
        let status = ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            phase: self.phase.name().to_owned(),
            uptime_seconds: now.as_secs_f64(),
            listen: listeners.map(|listener| listener.address.to_string()).collect(),
            front_epoch: front.epoch,
            front_pid: front.peer.as_ref().map(Peer::pid),
            certificates: self.acme.status(now),
            purge_log: self.purge_log.status(since_boot_millis()),
            nodes: self.purge_log.nodes(since_boot_millis()),
            faults: self.shown_faults(),
            jobs: self.jobs.report(pool, now),
            ..ServerStatus::default()
        };
        let drafted = self.status_source().add_to(status, pool)?;
        Ok(self.admin.draft(drafted, &mut self.pools, &mut self.traces, now))
    }

    fn status_source(&self) -> StatusSource<'_> {
        StatusSource {
            pools: &self.pools,
            scoreboards: &self.scoreboards,
            groups: self.plan.groups.as_ref(),
            measures: self.admin.measures(),
            preloading: &self.preloading,
            capacity: &self.capacity,
        }
    }
}

fn log_place(target: &LogTarget) -> LogPlace {
    match target {
        LogTarget::Stderr => LogPlace::Stderr,
        LogTarget::File(path) => LogPlace::File(path.clone()),
        LogTarget::Collector(Collector::Journald(socket)) => LogPlace::Journal(socket.clone()),
        LogTarget::Syslog | LogTarget::Collector(Collector::Syslog(_)) => {
            LogPlace::Elsewhere(target.to_string())
        }
    }
}
