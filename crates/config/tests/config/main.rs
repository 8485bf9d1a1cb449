//! The configuration as a whole: settings, mistakes and their sentences.

#[cfg(test)]
mod environment;
#[cfg(test)]
mod folder;
#[cfg(test)]
mod fpm;
#[cfg(test)]
mod fpm_beside_php_fpm;
#[cfg(test)]
mod guides;
#[cfg(test)]
mod include;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod newcomers;
#[cfg(test)]
mod pool_defaults;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod remarks;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod sites;
#[cfg(test)]
mod wrong_values;
