"""Calls of the scheduler: filter, prioritize, bind and preempt. They read decisions and change claims."""
