document.addEventListener("chosen", showChosen);
showChosen();
document.body.dataset.ready = "true";
