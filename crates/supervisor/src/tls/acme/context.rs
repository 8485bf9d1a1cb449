//! What the orders of certificates need of the rest of the server.

use std::time::SystemTime;

use maitred_config::{Acme as Settings, Config};
use maitred_os::fork::HowEnded;
use maitred_os::users::Identity;

use super::AcmeManager;
use super::schedule::Clocks;
use crate::fronts::Fronts;
use crate::limits::Moment;
use crate::tls::certificates::Certificates;

/// What the orders of certificates need of the rest of the server.
#[derive(Debug)]
pub struct AcmeContext<'a> {
    /// The configuration in use.
    pub config: &'a Config,
    /// The certificates in use.
    pub certificates: &'a mut Option<Certificates>,
    /// All fronts.
    pub fronts: &'a mut Fronts,
    /// The environment of the process.
    pub environment: &'a [(String, String)],
    /// The user of the process.
    pub identity: Option<&'a Identity>,
    /// The server serves, and no upgrade is going on.
    pub is_serving: bool,
    /// The time.
    pub now: Moment,
}

/// The orders of certificates, and what they need.
#[derive(Debug)]
pub struct AcmeTask<'a> {
    /// The orders.
    pub manager: &'a mut AcmeManager,
    /// What they need.
    pub context: AcmeContext<'a>,
}

impl AcmeTask<'_> {
    /// Orders certificates that are due.
    pub fn keep(mut self) {
        self.manager.keep(&mut self.context);
    }

    /// Receives the reports of the process that gets a certificate.
    pub fn receive(mut self) {
        self.manager.receive(&mut self.context);
    }

    /// Receives the reports of the process that shares certificates.
    pub fn receive_shared(mut self) {
        self.manager.receive_shared(&mut self.context);
    }

    /// The process that shares certificates has ended.
    pub fn shared_process_ended(mut self, how: HowEnded) {
        self.manager.shared_process_ended(how, &mut self.context);
    }

    /// The process that gets a certificate has ended.
    pub fn process_ended(mut self, pid: i32, how: HowEnded) {
        self.manager.process_ended(pid, how, &mut self.context);
    }
}

impl AcmeContext<'_> {
    pub fn clocks(&self) -> Clocks {
        Clocks { moment: self.now, wall: SystemTime::now() }
    }

    pub fn settings(&self) -> Option<&Settings> {
        settings(self.config)
    }
}

pub fn settings(config: &Config) -> Option<&Settings> {
    config.tls.as_ref()?.acme.as_ref()
}
