//! What to admit, what to evict: pure decisions, driven alike by the server and the simulator.
