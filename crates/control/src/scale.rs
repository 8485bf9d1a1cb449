//! The load of a node, for autoscalers and load balancers: the JSON of `/scale`, and a part of the
//! status.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The load of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeScale {
    /// What all requests need as a part of the nearest limit; 1 is all of it.
    pub saturation: f64,
    /// That limit: `cpu`, `memory`, `max_children`, or `front` (the threads of the front).
    pub nearest: String,
    /// 95 of a hundred requests of the last 15 seconds have waited less for a worker, in seconds:
    /// that of the pool where it is longest.
    pub queue_seconds: f64,
    /// Processors that pools and front need.
    pub cores: f64,
    /// The pools.
    pub pools: BTreeMap<String, PoolScale>,
}

/// The load of a pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolScale {
    /// What its requests need as a part of the nearest limit; 1 is all of it.
    pub saturation: f64,
    /// That limit: `cpu`, `memory` or `max_children`.
    pub nearest: String,
    /// 95 of a hundred of its requests of the last 15 seconds have waited less for a worker, in
    /// seconds.
    pub queue_seconds: f64,
    /// Processors that its requests need.
    pub cores: f64,
    /// Workers that its requests need.
    pub workers: f64,
    /// Its requests wait longer for a database or the like than before: what all nodes share is the
    /// bottleneck, and more nodes would not help.
    pub waits_downstream: bool,
}
