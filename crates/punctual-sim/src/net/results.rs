//! The end of a run: what networks, flows and chains did, and whether every packet is accounted for.

use std::collections::VecDeque;

use punctual_model::network::Traffic;
use punctual_model::results::{
    ChainResult, CongestionResult, FlowResult, JobStats, NetworkResult, PacketCounts, Segment, SegmentResult,
};
use punctual_sched::Duration;

use super::{FlowState, Served, Tally, Times};
use crate::index::KernelIx;
use crate::machine::Machine;
use crate::observe::{Event, Observer, PacketEvent};

impl<O: Observer> Machine<'_, O> {
    /// Kernels that are in the middle of a step have spent time; requests may be overdue.
    pub(crate) fn finish_networks(&mut self) {
        for kernel in 0..self.net.kernels.len() {
            if self.net.kernels[kernel].powered {
                self.kernel_pause(KernelIx::new(kernel), self.now);
            }
        }
        for flow in 0..self.net.flows.len() {
            self.expire(flow as u32);
        }
        self.tell_counts();
    }

    /// What was created was delivered, dropped or is on its way: reports it to the observer.
    fn tell_counts(&mut self) {
        for owner in 0..(self.net.flows.len() + self.net.chains.len()) as u32 {
            let Tally { packets, alive, .. } = self.net.tally(owner);
            let PacketCounts { created, delivered, dropped, .. } = *packets;
            let (dropped, on_their_way) = (dropped.total(), *alive);
            let counted = PacketEvent::Counted { owner, created, delivered, dropped, on_their_way };
            self.notify(Event::Packet(counted));
        }
        let answered = |queue: &VecDeque<Served>| queue.iter().filter(|s| s.packet.is_some()).count();
        let answering = self.net.served.iter().map(answered).sum::<usize>() as u64;
        let places = self.net.packets.len() as u64;
        self.notify(Event::Packet(PacketEvent::Held { places, answering }));
    }

    pub(crate) fn network_results(&mut self) -> Vec<NetworkResult> {
        let result = |(network, bridge): (&punctual_model::network::Network, &super::Bridge)| NetworkResult {
            name: network.name.clone(),
            driver: self.host.domains[network.driver.0].name.clone(),
            discipline: network.discipline.info.name.into(),
            tx: bridge.carried[0],
            softnet: bridge.carried[1],
            rx: bridge.carried[2],
            events_handled: bridge.events_handled,
            events_sent: bridge.events_sent,
        };
        self.host.networks.iter().zip(&self.net.bridges).map(result).collect()
    }

    pub(crate) fn flow_results(&mut self) -> Vec<FlowResult> {
        let flows = std::mem::take(&mut self.net.flows);
        let result = |(flow, state): (&punctual_model::network::Flow, FlowState)| {
            let network = &self.host.networks[flow.network.0];
            let congestion = congestion(&state);
            let (packets, latency, segments) = state.tally.result();
            FlowResult {
                name: flow.name.clone(),
                network: network.name.clone(),
                kind: flow.traffic.kind().into(),
                from: self.host.endpoint_name(flow.network, flow.from).into(),
                to: self.host.endpoint_name(flow.network, flow.to).into(),
                packets,
                timeouts: state.timeouts,
                retransmissions: state.retransmissions,
                deadline_ns: flow.deadline.map(Duration::as_ns),
                late: state.late,
                congestion,
                latency,
                segments,
                parts: Vec::new(),
            }
        };
        self.host.flows.iter().zip(flows).map(result).collect()
    }

    pub(crate) fn chain_results(&mut self) -> Vec<ChainResult> {
        let chains = std::mem::take(&mut self.net.chains);
        let mut results = Vec::new();
        for (chain, mut state) in self.host.chains.iter().zip(chains) {
            let first = &self.tasks[chain.steps[0].0];
            state.jobs.released = first.jobs.released;
            state.jobs.start_latency = first.jobs.start_latency.clone();
            let mut job = first.arrivals.first();
            while job.number < first.head.number && job.release + state.deadline <= self.end {
                state.jobs.due += 1;
                job = first.arrivals.after(job);
            }
            state.jobs.missed = state.jobs.due - state.in_time;
            let (packets, _, segments) = state.tally.result();
            let step = |task: &punctual_model::index::TaskIx| {
                let task = &self.host.tasks[task.0];
                format!("{}.{}", self.host.parent_name(task.parent), task.name)
            };
            let steps = chain.steps.iter().map(step).collect();
            let jobs: JobStats = state.jobs;
            let (name, deadline_ns) = (chain.name.clone(), Some(chain.deadline.as_ns()));
            results.push(ChainResult { name, steps, deadline_ns, jobs, packets, segments });
        }
        results
    }

    /// Time that the kernel of each domain spent on networks.
    pub(crate) fn network_times(&self) -> Vec<Duration> {
        let mut spent = vec![Duration::ZERO; self.host.domains.len()];
        for kernel in &self.net.kernels {
            spent[self.host.vcpus[kernel.vcpu.index()].domain.0] += kernel.spent;
        }
        spent
    }
}

fn congestion(state: &FlowState) -> Option<CongestionResult> {
    let Traffic::Stream { control, .. } = state.traffic else { return None };
    let tcp = state.sender.as_ref()?.tcp()?;
    let counts = tcp.counts();
    Some(CongestionResult {
        control: control.name().into(),
        fast_retransmits: counts.fast_retransmits,
        window: tcp.congestion_window(),
        window_max: counts.window_max,
        threshold: tcp.threshold(),
        srtt_ns: tcp.srtt_ns(),
        rto_ns: tcp.rto_ns(),
    })
}

impl Tally {
    fn result(self) -> (PacketCounts, punctual_model::Histogram, Vec<SegmentResult>) {
        let packets = PacketCounts { in_flight: self.alive, ..self.packets };
        let Times { latency, segments } = self.times;
        let segments = Segment::ALL.into_iter().zip(segments);
        let segments = segments.filter(|(_, time)| !time.max().is_zero());
        (packets, latency, segments.map(|(segment, time)| SegmentResult { segment, time }).collect())
    }
}
