"""The scheduler's calls: filter, prioritize, bind and preempt. They read Decisions and move claims."""
