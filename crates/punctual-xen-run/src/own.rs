//! Xen's own RTDS and Credit, through `xl sched-rtds` and `xl sched-credit`.

use std::process::{Command, Stdio};

use punctual_model::file;
use punctual_model::text::printable;
use punctual_sched::{Duration, UnitParams, credit, rtds};

use crate::error::Error;

/// Options of our Credit that say what Xen's always does.
const CREDIT_IS: [&str; 9] = [
    "rules=xen",
    "refill=period",
    "charge=exact",
    "ticks=drifting",
    "credits_kept=half",
    "boost=true",
    "tickle=true",
    "sort=false",
    "steal=true",
];

/// A scheduler of Xen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnScheduler {
    /// `xen/common/sched/rt.c`.
    Rtds,
    /// `xen/common/sched/credit.c`.
    Credit,
}

impl OwnScheduler {
    /// The one with this number (`XEN_SCHEDULER_*`, Xen `xen/include/public/domctl.h`).
    pub(crate) fn of_number(number: u32) -> Option<OwnScheduler> {
        match number {
            5 => Some(OwnScheduler::Credit),
            8 => Some(OwnScheduler::Rtds),
            _ => None,
        }
    }

    /// Its name for xl, if one of Xen's own is this policy.
    ///
    /// # Errors
    /// None is.
    pub(crate) fn for_policy(policy: &str) -> Result<&'static str, Error> {
        match policy {
            rtds::NAME => Ok(rtds::NAME),
            credit::NAME => Ok(credit::NAME),
            _ => Err(Error::Refused(format!(
                "Xen has no `{policy}` of its own: boot it with sched=punctual (docs/xen.md)"
            ))),
        }
    }

    fn policy(self) -> &'static str {
        match self {
            OwnScheduler::Rtds => rtds::NAME,
            OwnScheduler::Credit => credit::NAME,
        }
    }

    /// Its policy's name, and the options of the cpupool.
    ///
    /// # Errors
    /// What xl says.
    pub(crate) fn options(self, pool: &str) -> Result<(String, String), Error> {
        let options = match self {
            OwnScheduler::Rtds => String::new(),
            OwnScheduler::Credit => {
                let said = xl(&["sched-credit", "-s", "-p", pool])?;
                credit_options(&said).ok_or_else(|| odd("sched-credit", &said))?
            }
        };
        Ok((self.policy().into(), options))
    }

    /// It is the policy of this name; sets the cpupool's options.
    ///
    /// # Errors
    /// Another policy or option than it has; what xl says.
    pub(crate) fn set_options(self, pool: &str, policy: &str, options: &str) -> Result<(), Error> {
        if policy != self.policy() {
            return Err(Error::Refused(format!(
                "{}: Xen's own {} cannot be `{policy}`: boot Xen with sched=punctual (docs/xen.md)",
                printable(pool),
                self.policy()
            )));
        }
        let credit = self == OwnScheduler::Credit;
        for option in options.split(',').filter(|option| !option.is_empty()) {
            if credit && CREDIT_IS.contains(&option) {
                continue;
            }
            let given = option.split_once('=').filter(|_| credit);
            let given = given.and_then(|(name, text)| Some((name, file::parse_duration(text).ok()?.as_ns())));
            let (flag, value) = match given {
                Some((name, ns)) if name == credit::SLICE.name => ("-t", ns / 1_000_000),
                Some((name, ns)) if name == credit::RATELIMIT.name => ("-r", ns / 1_000),
                _ => {
                    return Err(Error::Refused(format!(
                        "{}: Xen's own {} has no `{}`",
                        printable(pool),
                        self.policy(),
                        printable(option)
                    )));
                }
            };
            xl(&["sched-credit", "-s", "-p", pool, flag, &value.to_string()])?;
        }
        Ok(())
    }

    /// Parameters of a vCPU; Credit's are the domain's.
    ///
    /// # Errors
    /// What xl says.
    pub(crate) fn unit(self, domain: u32, vcpu: u32) -> Result<UnitParams, Error> {
        let domain = domain.to_string();
        let line: &[&str] = match self {
            OwnScheduler::Rtds => &["sched-rtds", "-d", &domain, "-v", "all"],
            OwnScheduler::Credit => &["sched-credit", "-d", &domain],
        };
        let said = xl(line)?;
        let params = match self {
            OwnScheduler::Rtds => rtds_params(&said, vcpu),
            OwnScheduler::Credit => credit_params(&said),
        };
        params.ok_or_else(|| odd(line[0], &said))
    }

    /// Sets what it knows of the parameters; the others mean nothing to it.
    ///
    /// # Errors
    /// What xl says.
    pub(crate) fn set_unit(self, domain: u32, vcpu: u32, params: &UnitParams) -> Result<(), Error> {
        let params = &match self {
            OwnScheduler::Rtds => whole_rtds(params, &self.unit(domain, vcpu)?),
            OwnScheduler::Credit => params.clone(),
        };
        let (domain, vcpu) = (domain.to_string(), vcpu.to_string());
        let us = |time: Option<Duration>| time.map(|time| (time.as_ns() / 1_000).to_string());
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        let (mut line, given) = match self {
            OwnScheduler::Rtds => (
                vec!["sched-rtds", "-d", &domain, "-v", &vcpu],
                [
                    ("-p", us(params.period)),
                    ("-b", us(params.budget)),
                    ("-e", params.extratime.map(|extra| u32::from(extra).to_string())),
                ],
            ),
            OwnScheduler::Credit => (
                vec!["sched-credit", "-d", &domain],
                [("-w", number(params.weight)), ("-c", number(params.cap_percent)), ("", None)],
            ),
        };
        let values: Vec<&str> =
            given.iter().filter_map(|(flag, value)| Some([*flag, value.as_deref()?])).flatten().collect();
        if values.is_empty() {
            return Ok(());
        }
        line.extend(values);
        xl(&line).map(drop)
    }
}

fn xl(arguments: &[&str]) -> Result<String, Error> {
    let line = || format!("xl {}", arguments.join(" "));
    let said = Command::new("xl").args(arguments).stdin(Stdio::null()).output();
    let said = said.map_err(|error| Error::Refused(format!("cannot run {}: {error}", line())))?;
    if said.status.success() {
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&said.stderr);
        Err(Error::Refused(format!("{}: {}", line(), printable(said.trim()))))
    }
}

fn odd(command: &str, said: &str) -> Error {
    let said = printable(said.trim());
    Error::Refused(format!("xl {command} prints something else than expected: {said}"))
}

/// xl takes period, budget and extratime together: what is not given stays as it is.
fn whole_rtds(given: &UnitParams, before: &UnitParams) -> UnitParams {
    UnitParams {
        period: given.period.or(before.period),
        budget: given.budget.or(before.budget),
        extratime: given.extratime.or(before.extratime),
        ..UnitParams::default()
    }
}

/// `Cpupool Pool-0: tslice=30ms ratelimit=1000us migration-delay=0us`.
fn credit_options(said: &str) -> Option<String> {
    let number = |name: &str, unit: &str| {
        let (_, rest) = said.split_once(name)?;
        rest.split_once(unit)?.0.parse::<u64>().ok()
    };
    Some(format!("slice={}ms,ratelimit={}us", number("tslice=", "ms")?, number("ratelimit=", "us")?))
}

/// Name, domain, vCPU, period and budget in us, and whether it has extratime; the name may have blanks.
fn rtds_params(said: &str, vcpu: u32) -> Option<UnitParams> {
    said.lines().skip(1).find_map(|line| {
        let mut columns = line.split_whitespace().rev();
        let extratime = columns.next()? == "yes";
        let mut number = || columns.next()?.parse::<u64>().ok();
        let (budget, period, number) = (number()?, number()?, number()?);
        (number == u64::from(vcpu)).then(|| UnitParams {
            budget: Some(Duration::from_us(budget)),
            period: Some(Duration::from_us(period)),
            extratime: Some(extratime),
            ..UnitParams::default()
        })
    })
}

/// Name, domain, weight and cap.
fn credit_params(said: &str) -> Option<UnitParams> {
    let mut columns = said.lines().nth(1)?.split_whitespace().rev();
    let mut number = || columns.next()?.parse().ok();
    let (cap, weight) = (number()?, number()?);
    Some(UnitParams { weight: Some(weight), cap_percent: Some(cap), ..UnitParams::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xl_prints_is_read() {
        let said = "Name                                ID VCPU    Period    Budget  Extratime\n\
            Domain-0                             0    0     10000      4000        yes\n\
            Domain-0                             0    1     20000       500         no\n";
        let params = rtds_params(said, 1).unwrap();
        assert_eq!((params.budget, params.extratime), (Some(Duration::from_us(500)), Some(false)));
        assert_eq!(rtds_params(said, 0).unwrap().period, Some(Duration::from_ms(10)));
        assert!(rtds_params(said, 2).is_none() && rtds_params("odd", 0).is_none());
        let said = "Name                                ID Weight  Cap\nDomain-0    0    256    0\n";
        assert_eq!(credit_params(said).unwrap().weight, Some(256));
        let said = "Cpupool Pool-0: tslice=30ms ratelimit=1000us migration-delay=0us";
        assert_eq!(credit_options(said).as_deref(), Some("slice=30ms,ratelimit=1000us"));
    }

    #[test]
    fn what_is_not_given_stays_as_it_is() {
        let said = "Name ID VCPU Period Budget Extratime\nDomain-0 0 0 10000 4000 yes\n";
        let before = rtds_params(said, 0).unwrap();
        let given = UnitParams { budget: Some(Duration::from_us(500)), ..UnitParams::default() };
        let whole = whole_rtds(&given, &before);
        assert_eq!((whole.budget, whole.period, whole.extratime), (given.budget, before.period, Some(true)));
    }

    #[test]
    fn another_policy_or_option_than_it_has_is_refused() {
        let why = OwnScheduler::Rtds.set_options("Pool-0", "deferrable", "").unwrap_err().to_string();
        assert!(why.contains("sched=punctual"), "{why}");
        let why = OwnScheduler::Credit.set_options("Pool-0", "credit", "tick=1ms").unwrap_err().to_string();
        assert_eq!(why, "Pool-0: Xen's own credit has no `tick=1ms`");
        assert!(OwnScheduler::Credit.set_options("Pool-0", "credit", "refill=negative-sum").is_err());
        assert!(OwnScheduler::Credit.set_options("Pool-0", "credit", "refill=period,boost=true").is_ok());
        assert!(OwnScheduler::Rtds.set_options("Pool-0", "rtds", "").is_ok());
    }
}
