//! `maitred-simulator`: how our way of sizing compares with the best fixed number of workers, and with
//! the ways of others.

use clap::Parser;
use maitred_simulator::plant::Plant;
use maitred_simulator::plants;
use maitred_simulator::policies::auto::Auto;
use maitred_simulator::policies::fpm::{Dynamic, Ondemand};
use maitred_simulator::policies::frankenphp::Frankenphp;
use maitred_simulator::search::{FIRST_SEED, Score, best, numbers, score, traces_from};

/// A plant that is played for longer than this is played less often, with fewer numbers of workers.
const LONG_SECONDS: f64 = 600.0;
const LONG_SEEDS: u64 = 2;
const LONG_STEP: f64 = 0.2;

/// Compares pm = auto with the best fixed number of workers and with other ways of sizing.
#[derive(Debug, Parser)]
struct Options {
    /// Plants whose name has this in it.
    #[arg(default_value = "")]
    plant: String,
    /// How many times each is played.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The first seed. The constants were chosen with the 20 from 1000 on.
    #[arg(long, default_value_t = FIRST_SEED)]
    first_seed: u64,
    /// How long each is played, in seconds.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Steps between the numbers of workers that are tried, as a part of the number; 0: all.
    #[arg(long, default_value_t = 0.0)]
    step: f64,
    /// Leaves the other ways out.
    #[arg(long)]
    alone: bool,
}

fn main() {
    let options = Options::parse();
    let all = plants::stationary(options.seconds).into_iter();
    let all = all
        .chain([
            plants::hang(options.seconds),
            plants::hang_and_work(options.seconds),
            plants::hang_where_twenty_are_all(options.seconds),
            plants::dead_dependency(options.seconds),
            plants::step_from_cold(options.seconds),
            plants::pictures(options.seconds),
            plants::crosstalk(options.seconds),
        ])
        .chain(plants::ladder(options.seconds))
        .chain(plants::shifting(options.seconds))
        .chain([plants::day()]);
    for plant in all.filter(|plant| plant.name.contains(&options.plant)) {
        show(&plant, &options);
    }
}

fn show(plant: &Plant, options: &Options) {
    // A day is long, and its numbers of workers differ little from one day to the next.
    let is_long = plant.seconds > LONG_SECONDS.max(options.seconds);
    let (seeds, step) = match is_long {
        true => (options.seeds.min(LONG_SEEDS), options.step.max(LONG_STEP)),
        false => (options.seeds, options.step),
    };
    let traces = traces_from(plant, options.first_seed, seeds);
    let (number, fixed) = best(plant, &traces, &numbers(plant.cap, step));
    println!("\n{}", plant.name);
    line(&format!("static {number}"), &fixed, &fixed);
    let cores = plant.segments[0].cores;
    let cap = plant.cap;
    let auto = score(plant, &traces, &|| Box::new(Auto::new(plant)));
    line("auto", &auto, &fixed);
    if options.alone {
        return;
    }
    let dynamic = score(plant, &traces, &|| Box::new(Dynamic::by_the_guide(cap)));
    line("php-fpm dynamic", &dynamic, &fixed);
    let ondemand = score(plant, &traces, &|| Box::new(Ondemand::new(cap)));
    line("php-fpm ondemand", &ondemand, &fixed);
    let franken = score(plant, &traces, &|| Box::new(Frankenphp::new(cores, cap)));
    line("FrankenPHP", &franken, &fixed);
}

fn line(name: &str, score: &Score, fixed: &Score) {
    println!(
        "  {name:18} {:8.1}/s ({:5.3})  p50 {:8.2} ms  p99 {:8.2} ms ({:5.2})  {:6.2} workers \
         ({:5.2})  {:6.2} forks/s  swapping {:.1} s",
        score.goodput,
        score.goodput / fixed.goodput,
        score.p50 * 1000.0,
        score.p99 * 1000.0,
        score.p99 / fixed.p99,
        score.workers,
        score.workers / fixed.workers,
        score.forks,
        score.swapped,
    );
}
