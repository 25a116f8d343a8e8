"""Makes a copy of Xen's source count what its scheduler takes: calls, and ticks of the time stamp counter, of
do_schedule, wake, sleep, context_saved and the scheduler's own timer; and switches from one vCPU to another.
`xl debug-keys r` prints them.

usage: count.py XEN/common/sched
"""
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
KINDS = ["do_schedule", "wake", "sleep", "context_saved", "timer", "switch"]


def change(name, *changes):
    path = folder / name
    text = path.read_text()
    if "count_calls" in text:
        return
    for old, new in changes:
        if text.count(old) != 1:
            sys.exit(f"count.py: {path} has {text.count(old)} times: {old}")
        text = text.replace(old, new)
    path.write_text(text)


def counted(kind, call):
    number = KINDS.index(kind)
    counts = f"count_calls[{number}]++; count_ticks[{number}] += rdtsc() - t_;"
    return f"{{ uint64_t t_ = rdtsc(); {call}; {counts} }}"


declared = f"extern uint64_t count_calls[{len(KINDS)}], count_ticks[{len(KINDS)}];"
call = "sched->do_schedule(sched, prev, now, sched_tasklet_check(cpu))"
switched = "void sched_context_switched(struct vcpu *vprev, struct vcpu *vnext)"
number = KINDS.index("switch")
shown = " ".join(
    f'printk("COUNT {kind} %lu %lu\\n", count_calls[{number}], count_ticks[{number}]);'
    for number, kind in enumerate(KINDS)
)
change(
    "core.c",
    (f"    {call};\n", f"    {counted('do_schedule', call)}\n"),
    ("    if ( c != NULL )\n    {\n        sched = c->sched;", f"    {shown}\n    if ( c != NULL )\n    {{\n"
     "        sched = c->sched;"),
    ("void schedule_dump(", f"{declared.replace('extern ', '')}\n\nvoid schedule_dump("),
    # From there until the next vCPU is there; one processor.
    ("    context_switch(vprev, vnext);\n",
     "    switch_from = rdtsc();\n    context_switch(vprev, vnext);\n"),
    (f"{switched}\n{{\n    struct sched_unit *next = vnext->sched_unit;\n    struct sched_resource *sr;\n",
     f"static uint64_t switch_from;\n\n{switched}\n{{\n    struct sched_unit *next = vnext->sched_unit;\n"
     f"    struct sched_resource *sr;\n\n    if ( switch_from )\n    {{\n        count_calls[{number}]++;\n"
     f"        count_ticks[{number}] += rdtsc() - switch_from;\n        switch_from = 0;\n    }}\n"),
)
change(
    "private.h",
    ("        s->sleep(s, unit);\n", f"        {counted('sleep', 's->sleep(s, unit)')}\n"),
    ("        s->wake(s, unit);\n", f"        {counted('wake', 's->wake(s, unit)')}\n"),
    ("        s->context_saved(s, unit);\n",
     f"        {counted('context_saved', 's->context_saved(s, unit)')}\n"),
    ("static inline void sched_sleep(", f"{declared}\n\nstatic inline void sched_sleep("),
)
for name, handler in [("rt.c", "repl_timer_handler"), ("sched_punctual.c", "timer_handler")]:
    if (folder / name).exists():
        head = f"static void cf_check {handler}(void *data)"
        known = f"{head};" in (folder / name).read_text()
        change(
            name,
            (f"{head}\n{{", f"{'' if known else head + ';'}\n\nstatic void inner_handler(void *data)\n{{"),
            ("REGISTER_SCHEDULER(", f"{head}\n{{\n    {counted('timer', 'inner_handler(data)')}\n}}\n\n"
             "REGISTER_SCHEDULER("),
        )
