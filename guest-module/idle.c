// SPDX-License-Identifier: GPL-2.0-only
/*
 * The extended idle process: an idle CPU polls its event queue before it halts, so that a message that
 * arrives meanwhile needs no interrupt (O. F. Garcia Alvarado, University of Tsukuba 2019, section 5.3.3,
 * which patches the guest's idle process and the host's halt).
 *
 * While a CPU works, an event raises no interrupt: the next request does not disturb the program that serves
 * one. The event waits for the program's next call, for the CPU to be idle, or for its tick (section 5.2:
 * first in, first out). Each CPU does this on its own.
 *
 * A stock host wakes a halted CPU only by an interrupt, so this one polls for a while first. It does so as a
 * cpuidle driver: a VM whose host offers nothing but HLT has none.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/context_tracking.h>
#include <linux/cpuhotplug.h>
#include <linux/cpuidle.h>
#include <linux/module.h>
#include <linux/sched/clock.h>
#include <linux/sched/idle.h>
#include <linux/timer.h>
#include <linux/version.h>

#include "idle.h"
#include "transport.h"

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
#define idle_enter ct_cpuidle_enter
#define idle_exit ct_cpuidle_exit
#else
#define idle_enter ct_idle_enter
#define idle_exit ct_idle_exit
#endif

static uint idle_poll_us;
module_param(idle_poll_us, uint, 0444);
MODULE_PARM_DESC(idle_poll_us, "microseconds that an idle CPU polls for events before it halts");

static DEFINE_PER_CPU(struct timer_list, ticks);
static bool is_registered;
static enum cpuhp_state hotplug_state;

/* Polls until there is other work, or time is up. Interrupts are on. */
static void poll_events(void)
{
	u64 end = local_clock() + idle_poll_us * 1000ull;

	vmrpc_poll_begin();
	while (!need_resched() && local_clock() < end) {
		vmrpc_poll();
		cpu_relax();
	}
	vmrpc_poll_end();
}

static __cpuidle int enter(struct cpuidle_device *device, struct cpuidle_driver *driver, int index)
{
	local_irq_enable();
	if (!current_set_polling_and_test())
		poll_events();
	local_irq_disable();
	current_clr_polling();
	if (need_resched())
		return index;
	/* RCU must watch everything but the halt itself, because the functions around it wake programs. */
	vmrpc_halt_begin();
	if (!need_resched()) {
		idle_enter();
		raw_safe_halt();
		raw_local_irq_disable();
		idle_exit();
	}
	vmrpc_halt_end();
	return index;
}

static struct cpuidle_driver driver = {
	.name = "punctual",
	.states = { {
		.name = "QUEUE",
		.desc = "poll for events, then halt",
		.enter = enter,
		.exit_latency = 1,
		.target_residency = 1,
		/* A polling state keeps the tick: stopping and restarting it costs more than it saves. */
		.flags = CPUIDLE_FLAG_RCU_IDLE | CPUIDLE_FLAG_POLLING,
	} },
	.state_count = 1,
};

/* Bounds the delay of an event on a CPU that is never idle. */
static void on_tick(struct timer_list *tick)
{
	if (vmrpc_has_event())
		vmrpc_take_events();
	mod_timer(tick, jiffies + 1);
}

/* Hotplug callbacks run on the CPU that comes or goes. Linux moves the interrupt of one that goes. */
static int on_online(unsigned int cpu)
{
	struct timer_list *tick = per_cpu_ptr(&ticks, cpu);

	timer_setup(tick, on_tick, TIMER_DEFERRABLE | TIMER_PINNED);
	tick->expires = jiffies + 1;
	add_timer_on(tick, cpu);
	vmrpc_cpu_online();
	return 0;
}

static int on_offline(unsigned int cpu)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	timer_delete_sync(per_cpu_ptr(&ticks, cpu));
#else
	del_timer_sync(per_cpu_ptr(&ticks, cpu));
#endif
	vmrpc_cpu_offline();
	return 0;
}

static int start_polling(void)
{
	int state = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "punctual_sockets:online", on_online, on_offline);

	if (state < 0)
		return state;
	hotplug_state = state;
	vmrpc_set_idle_polling(true);
	return 0;
}

void idle_start(void)
{
	int error;

	if (!idle_poll_us || vmrpc_is_conventional())
		return;
	error = cpuidle_register(&driver, NULL);
	if (!error) {
		error = start_polling();
		if (error)
			cpuidle_unregister(&driver);
	}
	is_registered = !error;
	if (error)
		pr_warn("idle CPUs do not poll for events: error %d\n", -error);
}

/* No CPU is in enter() when this returns. */
void idle_stop(void)
{
	if (!is_registered)
		return;
	cpuhp_remove_state(hotplug_state);
	vmrpc_set_idle_polling(false);
	cpuidle_unregister(&driver);
}
