/* SPDX-License-Identifier: GPL-2.0-only */
/* Idle processors that look for events. */
#ifndef PUNCTUAL_IDLE_H
#define PUNCTUAL_IDLE_H

void idle_start(void);
void idle_stop(void);

#endif
