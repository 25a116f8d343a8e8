// SPDX-License-Identifier: GPL-2.0
/*
 * The extended idle process: a processor without work looks at the event queue itself before it halts, so
 * that a message that comes meanwhile needs no interrupt (O. F. Garcia Alvarado, University of Tsukuba 2019,
 * section 5.3.3, which patches the guest's idle process and the host's halt).
 *
 * A stock host wakes a processor that has halted by an interrupt alone, so this one polls for a while first.
 * It is a driver of cpuidle, which a VM has none of where nothing else than halting is offered.
 */
#include <linux/context_tracking.h>
#include <linux/cpuidle.h>
#include <linux/module.h>
#include <linux/sched/clock.h>
#include <linux/sched/idle.h>

#include "idle.h"
#include "transport.h"

static uint idle_poll_us;
module_param(idle_poll_us, uint, 0444);
MODULE_PARM_DESC(idle_poll_us, "microseconds that an idle processor looks for events before it halts");

static ulong idle_events;
module_param(idle_events, ulong, 0444);

static bool is_registered;

/* Looks until there is other work, or time is up. Interrupts are on. */
static void look(void)
{
	u64 end = local_clock() + idle_poll_us * 1000ull;

	vmrpc_look();
	while (!need_resched() && local_clock() < end) {
		if (vmrpc_has_event()) {
			idle_events++;
			vmrpc_take_events();
		}
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
	if (!need_resched()) {
		/* Until here RCU watches, because waking a program needs it. */
		ct_idle_enter();
		raw_safe_halt();
		raw_local_irq_disable();
		ct_idle_exit();
	}
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

	if (!idle_poll_us)
		return;
	error = cpuidle_register(&driver, NULL);
	is_registered = !error;
	if (error)
		pr_warn("punctual_sockets: idle processors do not look for events: error %d of cpuidle\n", -error);
}

/* Afterwards no processor is in enter(). */
void idle_stop(void)
{
	if (is_registered)
		cpuidle_unregister(&driver);
}
