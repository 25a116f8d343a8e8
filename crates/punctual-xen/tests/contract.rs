//! What is wrong is an error code and changes nothing.

use punctual_xen::Pool;
use punctual_xen::abi::*;

const NOTHING: Answer = Answer { next_timer_ns: 0, resched: Processors::NONE };

fn create(policy: &str, options: &str) -> Result<Box<Pool>, String> {
    let mut why = Text::EMPTY;
    let pool = punctual_create(Some(&Text::of(policy)), Some(&Text::of(options)), 2, 3, Some(&mut why));
    pool.ok_or_else(|| why.as_str().expect("UTF-8").to_owned())
}

/// A server of 4 ms every 10 ms on the processors of `affinity`.
fn server(affinity: u64) -> Params {
    let mut processors = Processors::NONE;
    processors.words[0] = affinity;
    Params {
        given: 0b1_0000_1011,
        priority: 1,
        budget_ns: 4_000_000,
        period_ns: 10_000_000,
        affinity: processors,
        ..Params::NONE_GIVEN
    }
}

fn insert(pool: &mut Pool, params: &Params) -> Result<u32, (i32, String)> {
    let (mut unit, mut why, mut then) = (u32::MAX, Text::EMPTY, NOTHING);
    match punctual_insert(Some(pool), 0, Some(params), Some(&mut unit), Some(&mut why), Some(&mut then)) {
        OK => Ok(unit),
        code => Err((code, why.as_str().expect("UTF-8").to_owned())),
    }
}

#[test]
fn what_is_no_pool_is_refused_with_the_reason() {
    let why = |policy, options| create(policy, options).expect_err("no pool");
    assert!(why("rdts", "").starts_with("no policy is called `rdts`; expected one of deferrable"));
    assert_eq!(
        why("deferrable", "quantum"),
        "`quantum` is not an option of the policy; options are NAME=VALUE"
    );
    assert_eq!(
        why("deferrable", "quanta=1ms"),
        "`quanta=1ms` is not an option of the policy; options are NAME=VALUE"
    );
    assert_eq!(why("deferrable", "quantum=1"), "option `quantum` does not take `1`");
    assert_eq!(
        why("deferrable", "quantum=99999999999999999999s"),
        "option `quantum` does not take `99999999999999999999s`"
    );
    assert!(why("deferrable", "quantum=0ns").starts_with("option `quantum` must be"));
    assert!(create("deferrable", "quantum=250us").is_ok());
    assert!(create("credit", "").is_ok());
    let text = Text::of("rtds");
    for (cpus, units) in [(0, 1), (513, 1), (1, 0), (1, 65_537)] {
        assert!(punctual_create(Some(&text), Some(&Text::EMPTY), cpus, units, None).is_none());
    }
}

#[test]
fn a_null_is_an_error() {
    let mut pool = create("rtds", "").expect("a pool");
    let mut then = NOTHING;
    assert_eq!(punctual_wake(None, 0, 0, Some(&mut then)), INVALID);
    assert_eq!(punctual_wake(Some(&mut pool), 0, 0, None), INVALID);
    assert_eq!(punctual_pick(Some(&mut pool), 0, 0, None, Some(&mut then)), INVALID);
    assert_eq!(punctual_account(Some(&pool), 0, None), INVALID);
    assert!(!punctual_policy(0, None));
    punctual_destroy(None);
}

#[test]
fn numbers_of_nothing_are_errors() {
    let mut pool = create("rtds", "").expect("a pool");
    let unit = insert(&mut pool, &server(0b11)).expect("a unit");
    let (mut then, mut slice) = (NOTHING, Slice { run: 9, unit: 9, until_ns: 9 });
    for wrong in [unit + 1, u32::MAX] {
        assert_eq!(punctual_wake(Some(&mut pool), 0, wrong, Some(&mut then)), NO_UNIT);
        assert_eq!(punctual_sleep(Some(&mut pool), 0, wrong, Some(&mut then)), NO_UNIT);
        assert_eq!(punctual_remove(Some(&mut pool), 0, wrong, Some(&mut then)), NO_UNIT);
        assert_eq!(punctual_deadline(Some(&mut pool), 0, wrong, 1, Some(&mut then)), NO_UNIT);
        let why = &mut Text::of("");
        let params = server(1);
        assert_eq!(
            punctual_adjust(Some(&mut pool), 0, wrong, Some(&params), Some(why), Some(&mut then)),
            NO_UNIT
        );
    }
    assert_eq!(punctual_pick(Some(&mut pool), 0, 2, Some(&mut slice), Some(&mut then)), NO_PROCESSOR);
    assert_eq!(slice.run, 9);
    assert_eq!(punctual_remove(Some(&mut pool), 0, unit, Some(&mut then)), OK);
    assert_eq!(punctual_remove(Some(&mut pool), 0, unit, Some(&mut then)), NO_UNIT);
}

#[test]
fn a_pool_takes_as_many_units_as_it_was_made_for_and_refuses_parameters_with_the_reason() {
    let mut pool = create("deferrable", "").expect("a pool");
    let too_long = Params { budget_ns: 11_000_000, ..server(0b11) };
    let (code, why) = insert(&mut pool, &too_long).expect_err("refused");
    assert!(code == PARAMETER && why.contains("budget"), "{code} {why}");
    let (code, why) = insert(&mut pool, &server(0b100)).expect_err("refused");
    assert!(code == PARAMETER && why.contains("affinity"), "{code} {why}");
    let units: Vec<u32> = (0..3).map(|_| insert(&mut pool, &server(0b11)).expect("a unit")).collect();
    assert_eq!(insert(&mut pool, &server(0b11)).map_err(|(code, _)| code), Err(FULL));
    let mut then = NOTHING;
    assert_eq!(punctual_remove(Some(&mut pool), 0, units[1], Some(&mut then)), OK);
    assert_eq!(insert(&mut pool, &server(0b11)), Ok(units[1]));
}

#[test]
fn every_policy_has_a_name_and_makes_a_pool() {
    let mut count = 0;
    let mut name = Text::EMPTY;
    while punctual_policy(count, Some(&mut name)) {
        assert!(create(name.as_str().expect("UTF-8"), "").is_ok());
        count += 1;
    }
    assert_eq!(count as usize, punctual_sched::registry::policies().len());
    assert_eq!(punctual_version(), VERSION);
}

#[test]
fn a_text_that_is_too_long_is_cut_between_letters() {
    let text = Text::of("ä".repeat(200));
    assert_eq!(text.as_str(), Some("ä".repeat(127).as_str()));
}

#[test]
fn a_clock_that_goes_back_stands_still() {
    let mut pool = create("deferrable", "").expect("a pool");
    let unit = insert(&mut pool, &server(0b1)).expect("a unit");
    let (mut then, mut slice) = (NOTHING, Slice { run: 0, unit: 0, until_ns: 0 });
    assert_eq!(punctual_wake(Some(&mut pool), 1_000_000, unit, Some(&mut then)), OK);
    assert_eq!(then.resched.words[0], 1);
    for now_ns in [1_000_000, 500_000, 0] {
        assert_eq!(punctual_pick(Some(&mut pool), now_ns, 0, Some(&mut slice), Some(&mut then)), OK);
        assert_eq!((slice.run, slice.unit, slice.until_ns > 1_000_000), (1, unit, true));
    }
    let mut account = Account { left_ns: 0, deadline_ns: 0, exhaustions: 0, replenishments: 0 };
    assert_eq!(punctual_account(Some(&pool), unit, Some(&mut account)), OK);
    assert_eq!(account.left_ns, 4_000_000);
}
