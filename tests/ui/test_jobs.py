"""What takes long: one at a time, in the order of asking, stopped without loss, and never in the way of the next."""

from __future__ import annotations

import threading

from streamlit.testing.v1 import AppTest

from tinput.ui import jobs


class Counting:
    """A job of some steps that notes how many computations there are at each."""

    current = "a step"

    def __init__(self, steps: int, stop_at: int | None = None):
        self.steps, self.done, self.stop_at, self.seen = steps, 0, stop_at, []

    @property
    def finished(self) -> bool:
        return self.done >= self.steps

    def advance(self) -> None:
        self.seen.append(jobs.in_line())
        if self.done == self.stop_at:
            self.stop_at = None
            raise RuntimeError("on purpose")
        self.done += 1


def script(*given):
    from tinput.ui import jobs

    jobs.offer(list(given), "x", "Go")


def test_a_button_does_all_that_is_left():
    one, two = Counting(3), Counting(2)
    at = AppTest.from_function(script, args=(one, two)).run()
    assert one.done == two.done == 0
    assert at.button(key="go-x").label == "Go"
    at.button(key="go-x").click().run()
    assert (one.done, two.done) == (3, 2)
    assert one.seen == [1, 1, 1]
    assert not at.button, "nothing is left, and nothing is offered"
    assert jobs.in_line() == 0


def test_stopped_it_goes_on_where_it_was_and_blocks_nobody():
    job = Counting(4, stop_at=1)
    at = AppTest.from_function(script, args=(job,)).run()
    at.button(key="go-x").click().run()
    assert at.exception[0].message == "on purpose"
    assert jobs.in_line() == 0
    at.run()
    assert at.button(key="go-x").label == "Go on (25 % is done)"
    at.button(key="go-x").click().run()
    assert job.done == 4
    assert len(job.seen) == 5


def test_turns_are_taken_in_the_order_of_asking():
    order, told, hold, ready = [], [], threading.Event(), [threading.Event() for _ in range(3)]

    def work(number: int) -> None:
        def wait(before: int) -> None:
            told.append((number, before))
            ready[number].set()

        with jobs.turn(wait):
            order.append(number)
            ready[number].set()
            if number == 0:
                hold.wait(30)

    threads = []
    for number in range(3):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        assert ready[number].wait(30)
    assert (order, jobs.in_line()) == ([0], 3)
    assert {(1, 1), (2, 2)} <= set(told)
    hold.set()
    for thread in threads:
        thread.join(30)
    assert order == [0, 1, 2]
    assert jobs.in_line() == 0
