// SPDX-License-Identifier: GPL-2.0-only
/*
 * The extended idle process: a processor without work looks at the event queue itself before it halts, so
 * that a message that comes meanwhile needs no interrupt (O. F. Garcia Alvarado, University of Tsukuba 2019,
 * section 5.3.3, which patches the guest's idle process and the host's halt).
 *
 * A program that serves a request is not interrupted by the next one: while its processor works, an event
 * raises no interrupt, and waits for the program's next call, for the processor to be idle, or for its tick
 * (section 5.2: first in, first out). This holds for each processor, whatever the others do.
 *
 * A stock host wakes a processor that has halted by an interrupt alone, so this one polls for a while first.
 * It is a driver of cpuidle, which a VM has none of where nothing else than halting is offered.
 */
#include <linux/context_tracking.h>
#include <linux/cpuidle.h>
#include <linux/module.h>
#include <linux/sched/clock.h>
#include <linux/sched/idle.h>
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
MODULE_PARM_DESC(idle_poll_us, "microseconds that an idle processor looks for events before it halts");

static bool is_registered;

/* Looks until there is other work, or time is up. Interrupts are on. */
static void look(void)
{
	u64 end = local_clock() + idle_poll_us * 1000ull;

	vmrpc_look();
	while (!need_resched() && local_clock() < end) {
		vmrpc_look_again();
		cpu_relax();
	}
	vmrpc_look_away();
}

static __cpuidle int enter(struct cpuidle_device *device, struct cpuidle_driver *driver, int index)
{
	local_irq_enable();
	if (!current_set_polling_and_test())
		look();
	local_irq_disable();
	current_clr_polling();
	if (need_resched())
		return index;
	/* RCU watches but for the halt, because waking a program needs it. */
	vmrpc_halt();
	if (!need_resched()) {
		idle_enter();
		raw_safe_halt();
		raw_local_irq_disable();
		idle_exit();
	}
	vmrpc_resume();
	return index;
}

static struct cpuidle_driver driver = {
	.name = "punctual",
	.states = { {
		.name = "QUEUE",
		.desc = "look for events, then halt",
		.enter = enter,
		.exit_latency = 1,
		.target_residency = 1,
		/* Polling: the tick goes on, because programming it anew costs more than it saves. */
		.flags = CPUIDLE_FLAG_RCU_IDLE | CPUIDLE_FLAG_POLLING,
	} },
	.state_count = 1,
};

void idle_start(void)
{
	int error;

	if (!idle_poll_us || vmrpc_is_conventional())
		return;
	error = cpuidle_register(&driver, NULL);
	if (!error) {
		error = vmrpc_idle_looks(true);
		if (error)
			cpuidle_unregister(&driver);
	}
	is_registered = !error;
	if (error)
		pr_warn("punctual_sockets: idle processors do not look for events: error %d of cpuidle\n", -error);
}

/* Afterwards no processor is in enter(). */
void idle_stop(void)
{
	if (!is_registered)
		return;
	vmrpc_idle_looks(false);
	cpuidle_unregister(&driver);
}
