//! Task sets of engine control, from the numbers that a manufacturer published of its own.
//!
//! Functions (*runnables*) of one period are a task. How many of them have which period, how long they take
//! on average, and how far best and worst case are from that are Tables III, IV and V of S. Kramer, D.
//! Ziegenbein, A. Hamann, *Real world automotive benchmarks for free*, WATERS 2015. The tasks that follow the
//! angle of the crankshaft (15 % of the runnables) have no fixed period and are left out.
//!
//! The paper gives the least, mean and greatest average time of the runnables of a period and advises a
//! Weibull distribution without its parameters. Here it starts at the least, has the mean, and exceeds the
//! greatest with probability 1/1000; such draws are repeated.

use super::random::RandomStream;

/// The runnables of a period.
struct Runnables {
    period_ms: u64,
    /// Of all runnables, in percent (Table III).
    share: u64,
    /// Least, mean and greatest of their average times, in us (Table IV).
    average_us: [f64; 3],
    /// Bounds of the factor from the average to the best case (Table V).
    best: [f64; 2],
    /// Bounds of the factor from the average to the worst case (Table V).
    worst: [f64; 2],
}

const RUNNABLES: [Runnables; 9] = [
    of(1, 3, [0.34, 5.00, 30.11], [0.19, 0.92], [1.30, 29.11]),
    of(2, 2, [0.32, 4.20, 40.69], [0.12, 0.89], [1.54, 19.04]),
    of(5, 2, [0.36, 11.04, 83.38], [0.17, 0.94], [1.13, 18.44]),
    of(10, 25, [0.21, 10.09, 309.87], [0.05, 0.99], [1.06, 30.03]),
    of(20, 25, [0.25, 8.74, 291.42], [0.11, 0.98], [1.06, 15.61]),
    of(50, 3, [0.29, 17.56, 92.98], [0.32, 0.95], [1.13, 7.76]),
    of(100, 20, [0.21, 10.53, 420.43], [0.09, 0.99], [1.02, 8.88]),
    of(200, 1, [0.22, 2.56, 21.95], [0.45, 0.98], [1.03, 4.90]),
    of(1000, 4, [0.37, 0.43, 0.46], [0.68, 0.80], [1.84, 4.75]),
];

/// A draw exceeds the greatest average time with this probability.
const BEYOND: f64 = 0.001;

const fn of(period_ms: u64, share: u64, average_us: [f64; 3], best: [f64; 2], worst: [f64; 2]) -> Runnables {
    Runnables { period_ms, share, average_us, best, worst }
}

/// Best and worst case of a runnable, or of the runnables of a task, in ns.
pub(super) type Cost = (f64, f64);

/// Draws a period by the runnables' shares.
pub(super) fn period_ms(stream: &mut RandomStream) -> u64 {
    drawn(stream).period_ms
}

/// Draws runnables until their worst cases add up to `utilization`; the last one is cut to fit. Those of one
/// period are one task, whose worst case is at most its period: then another task of that period begins.
/// Periods in ms with their tasks, shortest period first.
pub(super) fn rate_groups(
    stream: &mut RandomStream,
    utilization: f64,
) -> impl Iterator<Item = (u64, Cost)> + use<> {
    let shapes = RUNNABLES.each_ref().map(|kind| Weibull::of(kind.average_us));
    let mut tasks: [Vec<Cost>; RUNNABLES.len()] = Default::default();
    let mut left = utilization;
    while left > 0.0 {
        let kind = index(stream);
        let (best, worst) = runnable(stream, &RUNNABLES[kind], &shapes[kind]);
        let period = RUNNABLES[kind].period_ms as f64 * 1e6;
        let fits = (left * period / worst).min(1.0);
        add(&mut tasks[kind], (best * fits, worst * fits), period);
        // What is left below a nanosecond of the shortest period is no runnable.
        left -= worst * fits / period;
        left = if left < 1e-6 { 0.0 } else { left };
    }
    let groups = RUNNABLES.iter().map(|kind| kind.period_ms).zip(tasks);
    groups.flat_map(|(period_ms, costs)| costs.into_iter().map(move |cost| (period_ms, cost)))
}

/// Adds a runnable to the last task of its period, or to another one where it does not fit there.
fn add(tasks: &mut Vec<Cost>, (best, worst): Cost, period: f64) {
    match tasks.last_mut() {
        Some(task) if task.1 + worst <= period => *task = (task.0 + best, task.1 + worst),
        _ => tasks.push((best, worst)),
    }
}

fn runnable(stream: &mut RandomStream, kind: &Runnables, shape: &Weibull) -> Cost {
    let average = shape.draw(stream, kind.average_us) * 1e3;
    let best = stream.uniform(kind.best[0], kind.best[1]);
    let worst = stream.uniform(kind.worst[0], kind.worst[1]);
    (average * best, average * worst)
}

fn drawn(stream: &mut RandomStream) -> &'static Runnables {
    &RUNNABLES[index(stream)]
}

fn index(stream: &mut RandomStream) -> usize {
    let mut left = stream.whole(1, RUNNABLES.iter().map(|kind| kind.share).sum());
    let is_beyond = |kind: &Runnables| {
        let is_beyond = left > kind.share;
        left = left.saturating_sub(kind.share);
        is_beyond
    };
    RUNNABLES.iter().map(is_beyond).take_while(|is_beyond| *is_beyond).count()
}

/// A Weibull distribution above the least value.
struct Weibull {
    shape: f64,
    scale: f64,
}

impl Weibull {
    /// With this mean, which exceeds the greatest value with probability [`BEYOND`].
    fn of([least, mean, greatest]: [f64; 3]) -> Weibull {
        let scale_of = |shape: f64| (mean - least) / libm::tgamma(1.0 + 1.0 / shape);
        let tail = -libm::log(BEYOND);
        let top_of = |shape: f64| least + scale_of(shape) * libm::pow(tail, 1.0 / shape);
        // The greater the shape, the shorter the tail.
        let (mut low, mut high) = (0.2, 20.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if top_of(middle) > greatest { low = middle } else { high = middle }
        }
        Weibull { shape: high, scale: scale_of(high) }
    }

    fn draw(&self, stream: &mut RandomStream, [least, _, greatest]: [f64; 3]) -> f64 {
        loop {
            let x = least + self.scale * libm::pow(-libm::log(1.0 - stream.unit()), 1.0 / self.shape);
            if x <= greatest {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{assert_mean, mean_of, stream};
    use super::*;

    #[test]
    fn shares_are_those_of_the_paper_without_angles() {
        assert_eq!(RUNNABLES.iter().map(|kind| kind.share).sum::<u64>(), 100 - 15);
        let mut s = stream("shares");
        for kind in &RUNNABLES {
            let draws = mean_of(40_000, || f64::from(period_ms(&mut s) == kind.period_ms));
            assert_mean("share", kind.share as f64 / 85.0, draws);
        }
    }

    #[test]
    fn average_times_have_their_means_and_bounds() {
        let mut s = stream("averages");
        for kind in &RUNNABLES {
            let weibull = Weibull::of(kind.average_us);
            let [least, mean, greatest] = kind.average_us;
            let mut all = Vec::new();
            let (drawn, error) = mean_of(40_000, || {
                all.push(weibull.draw(&mut s, kind.average_us));
                all[all.len() - 1]
            });
            assert!(all.iter().all(|x| (least..=greatest).contains(x)), "{} ms", kind.period_ms);
            // Repeating the draws beyond the greatest takes at most 3 % off the mean.
            let low = mean * 0.97 - 4.0 * error;
            assert!((low..mean + 4.0 * error).contains(&drawn), "{} ms: {drawn}", kind.period_ms);
        }
    }
}
