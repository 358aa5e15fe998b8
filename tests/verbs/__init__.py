"""Filter, prioritize, bind and preempt, with the barrier behind them."""
