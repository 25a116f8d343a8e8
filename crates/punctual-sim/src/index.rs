//! Indices into the machine's lists, as types, so that a processor is not taken for a unit.

/// Declares an index: a newtype over `u32` with a value for "none".
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);

        impl $name {
            pub const NONE: Self = $name(u32::MAX);

            /// It, unless it is none.
            #[inline(always)]
            pub fn some(self) -> Option<Self> {
                (self != Self::NONE).then_some(self)
            }

            #[inline]
            pub const fn new(place: usize) -> Self {
                $name(place as u32)
            }

            /// As the place in a list.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

/// Lets an index stand between the brackets of the list that it belongs to.
macro_rules! indexes {
    ($name:ident, $item:ty) => {
        impl std::ops::Index<$name> for Vec<$item> {
            type Output = $item;

            #[inline(always)]
            fn index(&self, index: $name) -> &$item {
                &self[index.index()]
            }
        }

        impl std::ops::IndexMut<$name> for Vec<$item> {
            #[inline(always)]
            fn index_mut(&mut self, index: $name) -> &mut $item {
                &mut self[index.index()]
            }
        }
    };
}

pub(crate) use indexes;

index! {
    /// A scheduler: the pools of the host, then its domains.
    SchedulerIx
}

index! {
    /// Something that a scheduler schedules on: the physical processors of the host, then its vCPUs as their
    /// guests see them.
    ProcessorIx
}

index! {
    /// A domain's work in interrupt context.
    KernelIx
}

index! {
    /// Something that is scheduled: the vCPUs of the host, then its tasks.
    UnitIx
}

/// What a processor does: nothing, a unit, or nothing while a unit's budget idles away. One word, because it
/// is compared with every decision.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Occupant(u32);

impl Occupant {
    pub const IDLE: Occupant = Occupant(u32::MAX);
    const IDLES_FOR: u32 = 1 << 31;

    #[inline(always)]
    pub const fn unit(unit: UnitIx) -> Self {
        Occupant(unit.0)
    }

    /// Nothing runs, while the unit's budget idles away.
    #[inline(always)]
    pub(crate) const fn idle_for(unit: UnitIx) -> Self {
        Occupant(unit.0 | Occupant::IDLES_FOR)
    }

    #[inline(always)]
    pub fn runs(self) -> Option<UnitIx> {
        (self.0 & Occupant::IDLES_FOR == 0).then_some(UnitIx(self.0))
    }

    /// The unit whose time it is: it runs, or its budget idles away.
    #[inline(always)]
    pub fn charged(self) -> Option<UnitIx> {
        (self != Occupant::IDLE).then_some(UnitIx(self.0 & !Occupant::IDLES_FOR))
    }
}

impl std::fmt::Debug for Occupant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.runs(), self.charged()) {
            (Some(unit), _) => write!(f, "{unit:?}"),
            (None, Some(unit)) => write!(f, "idle for {unit:?}"),
            (None, None) => write!(f, "idle"),
        }
    }
}
