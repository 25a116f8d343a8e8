/* SPDX-License-Identifier: GPL-2.0-only */
/* Idle CPUs that poll for events. */
#ifndef PUNCTUAL_IDLE_H
#define PUNCTUAL_IDLE_H

/* Does nothing, but for a warning, where the parameter is 0 or another cpuidle driver is registered. */
void idle_start(void);
void idle_stop(void);

#endif
