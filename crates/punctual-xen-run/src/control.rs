//! The schedulers of cpupools, Punctual's or Xen's own: policies, parameters and counts of vCPUs.

use punctual_sched::{UnitParams, rtds};
use punctual_xen::abi::Params;
use punctual_xen::op::{Op, What};

use crate::error::Error;
use crate::hypervisor::Xen;
use crate::own::OwnScheduler;
use crate::plan::FIRST_POOL;

/// What happened to a vCPU's budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often it was used up.
    pub exhaustions: u64,
    /// How often it was replenished.
    pub replenishments: u64,
}

/// The schedulers in Xen, as a run uses them. Cpupools go by their names, domains by their numbers. Errors
/// say why Xen or the policy refuses.
pub struct Control(Xen);

impl Control {
    /// The schedulers of the Xen below this domain 0.
    ///
    /// # Errors
    /// There is none.
    pub fn open() -> Result<Control, Error> {
        Xen::open().map(Control)
    }

    /// Xen's own scheduler, if the cpupool has one; `None`: Punctual's has it.
    fn own(&mut self, pool: &str) -> Result<Option<OwnScheduler>, Error> {
        self.0.own_scheduler(pool)
    }

    fn scheduler_op(&mut self, pool: &str, op: &mut Op) -> Result<(), Error> {
        let pool = self.0.cpupool(pool)?;
        self.0.scheduler_op(&pool, op)
    }

    /// A cpupool's policy, and its options as `name=value,...`.
    ///
    /// # Errors
    /// There is no such pool, or its scheduler is another one.
    pub(crate) fn policy(&mut self, pool: &str) -> Result<(String, String), Error> {
        if let Some(own) = self.own(pool)? {
            return own.options(pool);
        }
        let mut op = Op::new(What::GetPool);
        self.scheduler_op(pool, &mut op)?;
        Ok((op.policy, op.options))
    }

    /// The scheduler, as xl names it, of a new cpupool with this policy. Punctual's scheduler has RTDS's
    /// number, and so its name.
    ///
    /// # Errors
    /// Xen has none for it.
    pub(crate) fn scheduler(&mut self, policy: &str) -> Result<&'static str, Error> {
        match self.own(FIRST_POOL)? {
            None => Ok(rtds::NAME),
            Some(_) => OwnScheduler::for_policy(policy),
        }
    }

    /// The policy under which guests boot and their clocks are read: a vCPU with work runs at once if the
    /// processor is free. A server that loses its budget meanwhile answers a question about its clock up to
    /// a period late. `None`: pools keep what they have.
    ///
    /// # Errors
    /// As [`Control::policy`].
    pub(crate) fn boot_policy(&mut self) -> Result<Option<&'static str>, Error> {
        Ok(self.own(FIRST_POOL)?.is_none().then_some(rtds::NAME))
    }

    /// Gives a cpupool another policy. Returns when, by domain 0's monotonic clock in ns, the periods of its
    /// servers began; `None`: the scheduler does not say, or they go on.
    ///
    /// # Errors
    /// As [`Control::policy`]; the policy's words, if it refuses.
    pub(crate) fn set_policy(
        &mut self,
        pool: &str,
        policy: &str,
        options: &str,
    ) -> Result<Option<u64>, Error> {
        if let Some(own) = self.own(pool)? {
            return own.set_options(pool, policy, options).map(|()| None);
        }
        let mut op = Op { policy: policy.into(), options: options.into(), ..Op::new(What::SetPool) };
        let pool = self.0.cpupool(pool)?;
        self.0.scheduler_op(&pool, &mut op)?;
        let ahead_ns = self.0.clock_ahead_ns(&pool)?;
        Ok(op.now_ns.checked_add_signed(-ahead_ns))
    }

    /// Parameters of a vCPU, and its counts where the scheduler has any.
    ///
    /// # Errors
    /// The vCPU is not in this pool.
    pub(crate) fn unit(
        &mut self,
        pool: &str,
        domain: u32,
        vcpu: u32,
    ) -> Result<(UnitParams, Option<Counts>), Error> {
        if let Some(own) = self.own(pool)? {
            return own.unit(domain, vcpu).map(|params| (params, None));
        }
        let mut op = Op { domain, vcpu, ..Op::new(What::GetUnit) };
        self.scheduler_op(pool, &mut op)?;
        let counts =
            Counts { exhaustions: op.account.exhaustions, replenishments: op.account.replenishments };
        Ok((op.params.unit_params(), Some(counts)))
    }

    /// Sets those parameters that are given, except the affinity.
    ///
    /// # Errors
    /// The policy's words, if it refuses.
    pub(crate) fn set_unit(
        &mut self,
        pool: &str,
        domain: u32,
        vcpu: u32,
        params: &UnitParams,
    ) -> Result<(), Error> {
        if let Some(own) = self.own(pool)? {
            return own.set_unit(domain, vcpu, params);
        }
        let params = Params::of(params);
        self.scheduler_op(pool, &mut Op { domain, vcpu, params, ..Op::new(What::SetUnit) })
    }

    /// How long a vCPU has run, in ns.
    ///
    /// # Errors
    /// There is no such vCPU.
    pub(crate) fn vcpu_time_ns(&mut self, domain: u32, vcpu: u32) -> Result<u64, Error> {
        self.0.vcpu_time_ns(domain, vcpu)
    }
}
