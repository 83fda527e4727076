// What a pointer has chosen in a lesson lets go of the keyboard, so that the arrow keys play the lesson and do not move
// the choice. Who goes through the page by the keyboard keeps the focus, and the keys mean there what they always do.
export default function () {
  function release(event) {
    if (!event.target.closest?.(".st-key-lesson-menu, .st-key-lesson-guess")) return;
    setTimeout(() => document.activeElement?.blur(), 0);
  }

  document.addEventListener("pointerup", release);
  return () => document.removeEventListener("pointerup", release);
}
