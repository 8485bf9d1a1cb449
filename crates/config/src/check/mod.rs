//! Checks between settings.

pub mod acme;
pub mod admin;
pub mod app_cron;
pub mod cache;
pub mod classic_paths;
pub mod confinement;
pub mod jobs;
pub mod listeners;
pub mod mode;
pub mod remarks;
pub mod site;
pub mod slowlog;
pub mod spare_servers;
pub mod tls;
