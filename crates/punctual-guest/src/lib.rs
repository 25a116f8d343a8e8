//! What a domain runs: a task set, its response times, and the words it exchanges with the host.
