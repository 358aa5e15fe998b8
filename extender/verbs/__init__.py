"""What answers the scheduler: filter, prioritize, bind and preempt. They read Decisions and move claims."""
