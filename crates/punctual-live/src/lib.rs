//! Scheduling policies on a real Linux host.
