//! Systems and results of CARTS.

use super::import;

#[test]
fn no_interface_and_what_is_not_known_are_said() {
    let infeasible = "<component name='OS' algorithm='EDF'><component name='C1' algorithm='EDF'>\
                      <resource><model cpus='0' period='5' execution_time='0'/></resource>\
                      </component></component>";
    let refused = import("carts", &[infeasible], &[]);
    refused.must_say(&["CARTS found no interface for C1"]);
    assert_eq!(refused.code, Some(2));
    let odd = "<system os_scheduler='EDF'><component name='C' scheduler='EDF' criticality='2'>\
               <tsk/><task name='T' p='10' d='10' e='1'/></component></system>";
    let imported = import("carts", &[odd], &[]);
    imported.must_say(&["<tsk> is not known"]);
    imported.must_say(&["attribute `criticality` is not known"]);
    assert_eq!(imported.host().tasks.len(), 1);
}
