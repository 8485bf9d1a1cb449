//! The rules of autoscalers.

use std::collections::VecDeque;

/// What an autoscaler knows of a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Its saturation; none while it is not ready.
    pub value: Option<f64>,
}

/// Decides the number of nodes.
pub trait Autoscaler {
    /// Nodes at the start.
    fn initial(&self) -> usize;
    /// Interval of its checks, in seconds.
    fn every(&self) -> f64;
    /// The number of nodes from now on.
    fn desired(&mut self, now: f64, nodes: &[Sample]) -> usize;
}

/// A fixed number of nodes.
#[derive(Debug)]
pub struct Fixed(pub usize);

impl Autoscaler for Fixed {
    fn initial(&self) -> usize {
        self.0
    }

    fn every(&self) -> f64 {
        15.0
    }

    fn desired(&mut self, _now: f64, _nodes: &[Sample]) -> usize {
        self.0
    }
}

/// Interval of the HPA's checks (`--horizontal-pod-autoscaler-sync-period`), in seconds.
const SYNC: f64 = 15.0;

/// A ratio this near to 1 changes nothing (`--horizontal-pod-autoscaler-tolerance`).
const TOLERANCE: f64 = 0.1;

/// Nodes are removed down to the most that was recommended in this time, in seconds
/// (`--horizontal-pod-autoscaler-downscale-stabilization`).
const STABILIZATION: f64 = 300.0;

/// Most nodes that are added at a check: as many as there are, or four (the default policies of
/// `behavior.scaleUp`).
const ADDED: usize = 4;

/// Kubernetes' horizontal pod autoscaler on the average of a metric of the pods
/// (`pkg/controller/podautoscaler`, `replica_calculator.go`, `calcPlainMetricReplicas`).
#[derive(Debug)]
pub struct Hpa {
    target: f64,
    fewest: usize,
    most: usize,
    recommended: VecDeque<(f64, usize)>,
    /// The metric is one number for all pods that are ready, and not one of each pod.
    is_external: bool,
}

impl Hpa {
    /// The HPA by itself.
    pub fn new(target: f64, fewest: usize, most: usize) -> Hpa {
        Hpa { target, fewest, most, recommended: VecDeque::new(), is_external: false }
    }

    /// KEDA with a trigger of the type `metrics-api` and `metricType: Value`: it passes the average
    /// of the pods that are ready to the HPA, as an external metric (`GetExternalMetricReplicas`).
    pub fn by_keda(target: f64, fewest: usize, most: usize) -> Hpa {
        Hpa { is_external: true, ..Hpa::new(target, fewest, most) }
    }

    /// The ratio of the metric to its target, and the number of pods that it is about.
    fn ratio(&self, nodes: &[Sample]) -> Option<(f64, usize)> {
        let values: Vec<f64> = nodes.iter().filter_map(|node| node.value).collect();
        let average = values.iter().sum::<f64>() / values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let ratio = average / self.target;
        let unready = nodes.len() - values.len();
        if self.is_external || unready == 0 || ratio <= 1.0 {
            return Some((ratio, values.len()));
        }
        // Pods that are not ready use nothing, when pods are to be added.
        let whole = values.iter().sum::<f64>() / nodes.len() as f64 / self.target;
        match whole > 1.0 {
            true => Some((whole, nodes.len())),
            false => Some((1.0, nodes.len())),
        }
    }
}

impl Autoscaler for Hpa {
    fn initial(&self) -> usize {
        self.fewest
    }

    fn every(&self) -> f64 {
        SYNC
    }

    fn desired(&mut self, now: f64, nodes: &[Sample]) -> usize {
        let current = nodes.len();
        let wanted = match self.ratio(nodes) {
            Some((ratio, pods)) if (ratio - 1.0).abs() > TOLERANCE => {
                (ratio * pods as f64).ceil() as usize
            }
            _ => current,
        };
        self.recommended.retain(|(at, _)| now - at < STABILIZATION);
        self.recommended.push_back((now, wanted));
        let stable = self.recommended.iter().map(|(_, nodes)| *nodes).max().unwrap_or(wanted);
        let wanted = if wanted < current { stable.min(current) } else { wanted };
        let limit = current + current.max(ADDED);
        wanted.min(limit).clamp(self.fewest, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(values: &[f64]) -> Vec<Sample> {
        values.iter().map(|value| Sample { value: Some(*value) }).collect()
    }

    #[test]
    fn pods_are_added_at_once_and_removed_after_five_minutes() {
        let mut hpa = Hpa::new(0.7, 2, 20);
        assert_eq!(hpa.desired(0.0, &nodes(&[0.76, 0.76])), 2, "within the tolerance");
        assert_eq!(hpa.desired(15.0, &nodes(&[1.4, 1.4])), 4);
        assert_eq!(hpa.desired(30.0, &nodes(&[0.1; 4])), 4);
        assert_eq!(hpa.desired(314.0, &nodes(&[0.1; 4])), 4);
        assert_eq!(hpa.desired(330.0, &nodes(&[0.1; 4])), 2);
        assert_eq!(hpa.desired(345.0, &nodes(&[9.0; 2])), 6, "four at a time");
    }

    #[test]
    fn pods_that_are_not_ready_count_as_idle_when_pods_are_to_be_added() {
        let mut hpa = Hpa::new(0.7, 2, 20);
        let mut some = nodes(&[1.4, 1.4]);
        some.extend([Sample { value: None }; 2]);
        assert_eq!(hpa.desired(0.0, &some), 4);
    }
}
