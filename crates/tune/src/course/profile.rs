//! The cost of a request for each route, with one user alone (T4).

use serde::Serialize;

use crate::measurement::Measurement;

/// Most routes that are measured: the most frequent ones.
pub const MOST_ROUTES: usize = 20;

/// A requested path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Route {
    /// Its method and its path.
    pub name: String,
    /// Its share of all requests.
    pub share: f64,
}

/// The measurement of a route alone. Times are in seconds, memory is in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RouteProfile {
    /// Its method and its path.
    pub name: String,
    /// Its share of all requests.
    pub share: f64,
    /// The measurement with one user.
    pub seen: Measurement,
}

/// Routes, measured one after another.
#[derive(Debug, Clone)]
pub struct Profile {
    routes: Vec<Route>,
    /// The routes measured so far.
    pub profiled: Vec<RouteProfile>,
}

impl Profile {
    /// Measures these routes. A single route needs no measurement of its own, since that of all
    /// requests is the same.
    pub fn of(routes: &[Route]) -> Profile {
        let several = if routes.len() > 1 { routes } else { &[] };
        Profile {
            routes: several.iter().take(MOST_ROUTES).cloned().collect(),
            profiled: Vec::new(),
        }
    }

    /// The index of the next route; `None` at the end.
    pub fn next(&self) -> Option<usize> {
        Some(self.profiled.len()).filter(|at| *at < self.routes.len())
    }

    /// The next route's name.
    pub fn next_name(&self) -> Option<&str> {
        self.next().map(|at| self.routes[at].name.as_str())
    }

    /// The number of remaining routes.
    pub fn left(&self) -> usize {
        self.routes.len() - self.profiled.len()
    }

    /// The number of all routes.
    pub fn count(&self) -> usize {
        self.routes.len()
    }

    /// Takes the next measurement.
    pub fn tried(&mut self, seen: Measurement) {
        if let Some(route) = self.routes.get(self.profiled.len()) {
            self.profiled.push(RouteProfile { name: route.name.clone(), share: route.share, seen });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(count: usize) -> Vec<Route> {
        let route = |number| Route { name: format!("/{number}"), share: 1.0 / count as f64 };
        (0..count).map(route).collect()
    }

    #[test]
    fn each_route_is_looked_at_once_and_a_single_one_not_apart() {
        let mut profile = Profile::of(&routes(3));
        while let Some(at) = profile.next() {
            assert_eq!(at + profile.left(), 3);
            profile.tried(Measurement::default());
        }
        let names: Vec<&str> = profile.profiled.iter().map(|each| each.name.as_str()).collect();
        assert_eq!(names, ["/0", "/1", "/2"]);
        assert_eq!(Profile::of(&routes(1)).next(), None);
        assert_eq!(Profile::of(&routes(50)).count(), MOST_ROUTES);
    }
}
